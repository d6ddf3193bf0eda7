"""Saved few-shot draws: their file, their size, and whether they still fit the dataset."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from cocoamix.errors import UserError, brief, printable, shorten

from .items import Items

FOLDER = "split_fewshot"  # in the dataset's folder, as in CoOp
MOST_VALIDATION_SHOTS = 4


def draw_file(folder: str | os.PathLike[str], shots: int, seed: int) -> Path:
    """Return the file in which CoOp saves a few-shot draw."""
    return Path(folder, FOLDER, f"shot_{shots}-seed_{seed}.pkl")


def validation_shots(shots: int) -> int:
    """Return the number of validation images that CoOp draws per class."""
    return min(shots, MOST_VALIDATION_SHOTS)


def fitting(saved: Items, current: Items, shots: int, split: str, origin: Path) -> Items:
    """Return the current items of a saved draw; reject a draw that does not fit the dataset.

    An image may have become a test image since, or its label may now mean another class, and no result would show it.

    Args:
        saved: The items of the draw.
        current: The items of the split that the draw was made from.
        shots: The largest number of images per class.
        split: Name of the split.
        origin: The file of the draw.
    """
    paths = {item.impath for item in saved}
    known = {item.impath: item for item in current if item.impath in paths}  # not all of ImageNet's million
    changed = [item for item in saved if not _same(item, known.get(item.impath))]
    if changed:
        first = changed[0]
        raise _misfit(
            origin,
            f"{len(changed)} of its {len(saved)} {split} images are not among the {split} images under the same label "
            f"and class name; the first is {shorten(printable(first.impath), 120)} (label {brief(first.label)}, "
            f"{brief(first.classname)})",
        )
    counts = Counter(item.label for item in saved)
    names = {item.label: item.classname for item in current}
    for label in sorted(names.keys() - counts.keys()):
        raise _misfit(origin, f"it has no {split} image of the class {label} ({names[label]!r})")
    for label, count in sorted(counts.items()):
        if count > shots:
            raise _misfit(
                origin, f"it has {count} {split} images of the class {label} ({names[label]!r}), more than {shots}"
            )
    return [known[item.impath] for item in saved]


def _same(item: object, current: object) -> bool:
    return current is not None and all(
        getattr(item, key) == getattr(current, key) for key in ("impath", "label", "classname")
    )


def _misfit(origin: Path, why: str) -> UserError:
    return UserError(
        f"The few-shot draw in {origin} does not fit the dataset: {why}. The classes, their names or the splits have "
        "changed since it was made. Delete that file to draw again, or restore the dataset."
    )
