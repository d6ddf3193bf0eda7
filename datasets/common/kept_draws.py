"""Saved few-shot draws: their file, their size, and whether they still fit the dataset."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

from cocoamix.errors import UserError, brief, printable, shorten

from .items import Items

FOLDER = "split_fewshot"  # in the dataset's folder, as in CoOp
MOST_VALIDATION_SHOTS = 4
_DRAW = re.compile(r"shot_(\d{1,9})-seed_(\d{1,19})\.pkl")


def draw_file(folder: str | os.PathLike[str], shots: int, seed: int) -> Path:
    """Return the file in which CoOp saves a few-shot draw."""
    return Path(folder, FOLDER, f"shot_{shots}-seed_{seed}.pkl")


def stored_draws(folder: str | os.PathLike[str]) -> list[tuple[Path, int, int]]:
    """Return the files of the stored draws in a dataset's folder, with their shots and seeds, in this order."""
    draws = Path(folder, FOLDER)
    names = [path.name for path in draws.iterdir()] if draws.is_dir() else []
    found = [(int(one[1]), int(one[2]), one[0]) for one in map(_DRAW.fullmatch, names) if one]
    return [(draws / name, shots, seed) for shots, seed, name in sorted(found)]


def validation_shots(shots: int) -> int:
    """Return the number of validation images that CoOp draws per class."""
    return min(shots, MOST_VALIDATION_SHOTS)


def fitting(saved: Items, current: Items, shots: int, split: str, origin: Path, any_names: bool = False) -> Items:
    """Return the current items of a saved draw; refuse a draw that does not fit the dataset.

    An image may have become a test image since, or its label may now mean another class, and no result would show it.

    Args:
        saved: The items of the draw.
        current: The items of the split that the draw was made from.
        shots: The largest number of images per class.
        split: Name of the split.
        origin: The file of the draw.
        any_names: Whether the class names may differ, if the labels agree.
    """
    paths = {item.impath for item in saved}
    known = {item.impath: item for item in current if item.impath in paths}  # not all of ImageNet's million
    changed = [item for item in saved if not _same(item, known.get(item.impath), any_names)]
    if changed:
        first = changed[0]
        raise _misfit(
            origin,
            f"{len(changed)} of its {len(saved)} {split} images are not among the {split} images under the same label"
            f"{'' if any_names else ' and class name'}; the first is {shorten(printable(first.impath), 120)} "
            f"(label {brief(first.label)}, {brief(first.classname)})",
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


def _same(item: object, current: object, any_names: bool) -> bool:
    compared = ("impath", "label") if any_names else ("impath", "label", "classname")
    return current is not None and all(getattr(item, key) == getattr(current, key) for key in compared)


def _misfit(origin: Path, why: str) -> UserError:
    return UserError(
        f"The few-shot draw in {origin} does not fit the dataset: {why}. The classes, their names or the splits have "
        "changed since it was made. Delete that file to draw again, or restore the dataset."
    )
