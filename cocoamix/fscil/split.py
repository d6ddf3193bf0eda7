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
class SessionSplit:
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

    def published_shots(self, how: SessionSplit) -> list[list[Any]]:
        """Return the training items of each session after the first."""
        ...


def split_into_sessions(dataset: Any, test: Sequence[Any], how: SessionSplit) -> list[Session]:
    """Return the sessions of a dataset.

    Args:
        dataset: A dataset with Dassl's interface, whose training items are `train_x`.
        test: The items for evaluation.
        how: How to split the dataset.
    """
    check_choice("FSCIL.SPLIT", how.split, SESSION_SPLITS)
    names = list(dataset.classnames)
    ranges = label_ranges(len(names), how)
    train_of, test_of = _by_label(dataset.train_x), _by_label(test)
    split = choose_split(dataset, how.split)
    if split == "cec":
        few = dataset.published_shots(how)
    else:
        few = [[item for label in labels for item in _draw(train_of[label], how)] for labels in ranges[1:]]
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


def choose_split(dataset: Any, split: str) -> str:
    """Return `cec` or `random`; `auto` is `cec` if the dataset has published images."""
    published = isinstance(dataset, Published)
    if split == "cec" and not published:
        raise UserError(
            f"FSCIL.SPLIT is cec, but {type(dataset).__name__} has no published sessions. "
            "Use random, or one of CIFAR100FSCIL, MiniImageNetFSCIL and CUB200FSCIL."
        )
    return {"auto": "cec" if published else "random"}.get(split, split)


def label_ranges(classes: int, how: SessionSplit) -> list[range]:
    """Return the labels of each session."""
    rest = classes - how.base
    if rest < 0 or rest % how.way:
        why = f"the {rest} left are not a multiple of {how.way}" if rest > 0 else "there are too few"
        raise UserError(
            f"{classes} classes cannot be split into FSCIL.BASE {how.base} and sessions of FSCIL.WAY {how.way}: {why}. "
            f"Choose other values, such as {_fitting_split(classes, how.way)}."
        )
    return [range(how.base), *(range(first, first + how.way) for first in range(how.base, classes, how.way))]


def _fitting_split(classes: int, way: int) -> str:
    """Return values that fit: about 60 % base classes, and sessions of the given size or smaller."""
    way = max(1, min(way, classes // 4))
    sessions = max(1, round(0.4 * classes / way))
    return f"FSCIL.BASE {classes - way * sessions} FSCIL.WAY {way}"


def _by_label(items: Sequence[Any]) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = {}
    for item in items:
        groups.setdefault(item.label, []).append(item)
    return groups


def _draw(items: Sequence[Any], how: SessionSplit) -> list[Any]:
    """Draw the few images of a class. The draw does not depend on other classes."""
    name = items[0].classname
    if len(items) < how.shots and not how.fewer:
        raise UserError(
            f"FSCIL.SHOTS is {how.shots}, but the class {name} has {len(items)} training images. "
            "Use fewer shots, or set DATASET.FEWER_SHOTS True to use all of them."
        )
    generator = random.Random(derive_seed(how.seed, "session", name))
    return generator.sample(list(items), min(how.shots, len(items)))
