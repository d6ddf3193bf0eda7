"""Class-incremental sessions: base classes with all their images, then a few classes with a few images at a time.

Any dataset can be split by the order of its labels, with the few images drawn from the seed. A dataset with published
few-shot images (see `Published`) provides those instead.
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
    """How to split a dataset into sessions: FSCIL.* of the configuration.

    Attributes:
        base: Classes of session 0.
        way: Classes of each later session.
        shots: Images per class of each later session.
        split: `cec` for the published images, `random` for a draw, `auto` for `cec` if there are published images.
        seed: Seed of the draw.
        fewer: Whether a class may have fewer than `shots` images.
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
        """Number of classes up to and including this session."""
        return self.labels.stop


@runtime_checkable
class Published(Protocol):
    """A dataset with published few-shot images."""

    def published_shots(self, cut: Cut) -> list[list[Any]]:
        """Return the training items of each session after the first."""
        ...


def cut_into_sessions(dataset: Any, test: Sequence[Any], cut: Cut) -> list[Session]:
    """Return the sessions of a dataset.

    Args:
        dataset: A dataset with Dassl's interface, whose training items are `train_x`.
        test: The items for evaluation.
        cut: How to split the dataset.
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
    train_items = [[item for label in ranges[0] for item in train_of[label]], *few]
    test_items = [[item for label in labels for item in test_of.get(label, [])] for labels in ranges]
    if not all(test_items):
        number = test_items.index([])
        shown_names = some_of([names[label] for label in ranges[number]], 100)
        raise UserError(
            f"There are no test images of the classes of session {number} ({shown_names}). Each session needs some "
            "in the split that TEST.SPLIT names."
        )
    return [
        Session(number, labels, names[labels.start : labels.stop], list(train_items[number]), test_items[number])
        for number, labels in enumerate(ranges)
    ]


def sessions_of(classnames: Sequence[str], sizes: Sequence[int], items: Sequence[Any]) -> list[Session]:
    """Return sessions with the given numbers of classes. A session's items are both its training and test items."""
    by_label, start, found = _by_label(items), 0, []
    for number, size in enumerate(sizes):
        labels = range(start, start + size)
        own = [item for label in labels for item in by_label[label]]
        found.append(Session(number, labels, list(classnames[start : start + size]), own, own))
        start += size
    return found


def choose_split(dataset: Any, split: str) -> str:
    """Return `cec` or `random`; `auto` is `cec` if the dataset has published images."""
    published = isinstance(dataset, Published)
    if split == "cec" and not published:
        raise UserError(
            f"FSCIL.SPLIT is cec, but {type(dataset).__name__} has no published sessions. "
            "Use random, or one of CIFAR100FSCIL, MiniImageNetFSCIL and CUB200FSCIL."
        )
    return {"auto": "cec" if published else "random"}.get(split, split)


def label_ranges(classes: int, cut: Cut) -> list[range]:
    """Return the labels of each session."""
    rest = classes - cut.base
    if rest < 0 or rest % cut.way:
        why = f"the {rest} left are not a multiple of {cut.way}" if rest > 0 else "there are too few"
        raise UserError(
            f"{classes} classes cannot be split into FSCIL.BASE {cut.base} and sessions of FSCIL.WAY {cut.way}: {why}. "
            f"Choose other values, such as {_fitting_cut(classes, cut.way)}."
        )
    return [range(cut.base), *(range(first, first + cut.way) for first in range(cut.base, classes, cut.way))]


def _fitting_cut(classes: int, way: int) -> str:
    """Return values that fit: about 60 % base classes, and sessions of the given size or smaller."""
    way = max(1, min(way, classes // 4))
    sessions = max(1, round(0.4 * classes / way))
    return f"FSCIL.BASE {classes - way * sessions} FSCIL.WAY {way}"


def _by_label(items: Sequence[Any]) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = {}
    for item in items:
        groups.setdefault(item.label, []).append(item)
    return groups


def _draw(items: Sequence[Any], cut: Cut) -> list[Any]:
    """Draw the few images of a class. The draw does not depend on other classes."""
    name = items[0].classname
    if len(items) < cut.shots and not cut.fewer:
        raise UserError(
            f"FSCIL.SHOTS is {cut.shots}, but the class {name} has {len(items)} training images. "
            "Use fewer shots, or set DATASET.FEWER_SHOTS True to use all of them."
        )
    generator = random.Random(derive_seed(cut.seed, "session", name))
    return generator.sample(list(items), min(cut.shots, len(items)))
