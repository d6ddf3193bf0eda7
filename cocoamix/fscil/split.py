"""Class-incremental sessions: base classes with all their images first, then a few classes with a few images at a time.

Any dataset can be cut: by the order of its labels, with the few images drawn from the seed. A dataset whose few images
are published (see `Published`) gives those instead.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from cocoamix.choices import SESSION_SPLITS
from cocoamix.errors import UserError, check_choice, some_of
from cocoamix.seeding import derive_seed


@dataclass(frozen=True)
class Cut:
    """How a dataset is cut: FSCIL.* of the configuration.

    split: `cec` for the published images, `random` for a draw, `auto` for the first where there are any.
    fewer: whether a class may have fewer images than `shots`.
    """

    base: int
    way: int
    shots: int
    split: str = "auto"
    seed: int = 0
    fewer: bool = False


@dataclass
class Session:
    """Classes that arrive together, with their labels among all classes, and their images."""

    number: int
    labels: range
    classnames: list[str]
    train: list[Any] = field(repr=False)
    test: list[Any] = field(repr=False)

    @property
    def seen(self) -> int:
        """How many classes there are up to and with this session."""
        return self.labels.stop


@runtime_checkable
class Published(Protocol):
    """A dataset whose few images are published."""

    def published_shots(self, cut: Cut) -> list[list[Any]]:
        """Return the training items of each session after the first."""
        ...


def cut_into_sessions(dataset: Any, test: Sequence[Any], cut: Cut) -> list[Session]:
    """Return the sessions of a dataset of Dassl's interface, whose items of all classes are `train_x`.

    test: the items that sessions are evaluated on.
    """
    check_choice("FSCIL.SPLIT", cut.split, SESSION_SPLITS)
    names = list(dataset.classnames)
    ranges = label_ranges(len(names), cut)
    train_of, test_of = _by_label(dataset.train_x), _by_label(test)
    split = choose_split(dataset, cut.split)
    if split == "cec":
        few = dataset.published_shots(cut)
    else:
        few = [[item for label in labels for item in _draw(train_of[label], cut)] for labels in ranges[1:]]
    shown = [[item for label in ranges[0] for item in train_of[label]], *few]
    tested = [[item for label in labels for item in test_of.get(label, [])] for labels in ranges]
    if not all(tested):
        number = tested.index([])
        shown_names = some_of([names[label] for label in ranges[number]], 100)
        raise UserError(
            f"No image to evaluate on is of the classes of session {number} ({shown_names}). Each session needs some "
            "in the split that TEST.SPLIT names."
        )
    return [
        Session(number, labels, names[labels.start : labels.stop], list(shown[number]), tested[number])
        for number, labels in enumerate(ranges)
    ]


def sessions_of(classnames: Sequence[str], sizes: Sequence[int], items: Sequence[Any]) -> list[Session]:
    """Return sessions of known sizes, each with its own of the items for training and tests alike."""
    by_label, start, found = _by_label(items), 0, []
    for number, size in enumerate(sizes):
        labels = range(start, start + size)
        own = [item for label in labels for item in by_label[label]]
        found.append(Session(number, labels, list(classnames[start : start + size]), own, own))
        start += size
    return found


def choose_split(dataset: Any, split: str) -> str:
    """Return `cec` or `random`, of which `auto` is the first where a dataset has published images."""
    published = isinstance(dataset, Published)
    if split == "cec" and not published:
        raise UserError(
            f"FSCIL.SPLIT is cec, but no images of {type(dataset).__name__} are published for sessions. "
            "Use random, or one of CIFAR100FSCIL, MiniImageNetFSCIL and CUB200FSCIL."
        )
    return {"auto": "cec" if published else "random"}.get(split, split)


def label_ranges(classes: int, cut: Cut) -> list[range]:
    """Return the labels of each session."""
    rest = classes - cut.base
    if rest < 0 or rest % cut.way:
        why = f"{rest} are left, which is no multiple of {cut.way}" if rest > 0 else "there are not as many"
        raise UserError(
            f"{classes} classes cannot be cut into FSCIL.BASE {cut.base} and sessions of FSCIL.WAY {cut.way}: {why}. "
            f"Choose others, such as {_fitting_cut(classes, cut.way)}."
        )
    return [range(cut.base), *(range(first, first + cut.way) for first in range(cut.base, classes, cut.way))]


def _fitting_cut(classes: int, way: int) -> str:
    """Return numbers that fit: about 60 % base classes, and sessions of the given size or smaller ones."""
    way = max(1, min(way, classes // 4))
    sessions = max(1, round(0.4 * classes / way))
    return f"FSCIL.BASE {classes - way * sessions} FSCIL.WAY {way}"


def _by_label(items: Sequence[Any]) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = {}
    for item in items:
        groups.setdefault(item.label, []).append(item)
    return groups


def _draw(items: Sequence[Any], cut: Cut) -> list[Any]:
    """Draw a class's few images, the same ones whatever the other classes are."""
    name = items[0].classname
    if len(items) < cut.shots and not cut.fewer:
        raise UserError(
            f"FSCIL.SHOTS is {cut.shots}, but the class {name} has {len(items)} training images. "
            "Use fewer shots, or set DATASET.FEWER_SHOTS True to take what there is."
        )
    generator = random.Random(derive_seed(cut.seed, "session", name))
    return generator.sample(list(items), min(cut.shots, len(items)))
