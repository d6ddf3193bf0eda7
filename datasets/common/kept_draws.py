"""Few-shot draws that are kept: where, how large, and whether one still fits the dataset."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from cocoamix.errors import UserError, brief, printable, shorten

from .items import Items

FOLDER = "split_fewshot"  # in the dataset's folder, as CoOp has it
MOST_VALIDATION_SHOTS = 4


def draw_file(folder: str | os.PathLike[str], shots: int, seed: int) -> Path:
    """Return where CoOp keeps a few-shot draw."""
    return Path(folder, FOLDER, f"shot_{shots}-seed_{seed}.pkl")


def validation_shots(shots: int) -> int:
    """Return how many images of a class CoOp draws for validation."""
    return min(shots, MOST_VALIDATION_SHOTS)


def fitting(kept: Items, today: Items, shots: int, split: str, origin: Path) -> Items:
    """Return today's items of a kept draw; refuse a draw that could not be made of them.

    An image may have become a test image since, or its label that of another class, and no result would show it.
    """
    paths = {item.impath for item in kept}
    known = {item.impath: item for item in today if item.impath in paths}  # of ImageNet's million, only these
    strange = [item for item in kept if not _same(item, known.get(item.impath))]
    if strange:
        first = strange[0]
        raise _misfit(
            origin,
            f"{len(strange)} of its {len(kept)} {split} images are not among the {split} images under the same label "
            f"and class name, the first is {shorten(printable(first.impath), 120)} (label {brief(first.label)}, "
            f"{brief(first.classname)})",
        )
    counts = Counter(item.label for item in kept)
    names = {item.label: item.classname for item in today}
    for label in sorted(names.keys() - counts.keys()):
        raise _misfit(origin, f"it has no {split} image of the class {label} ({names[label]!r})")
    for label, count in sorted(counts.items()):
        if count > shots:
            raise _misfit(
                origin, f"it has {count} {split} images of the class {label} ({names[label]!r}), more than {shots}"
            )
    return [known[item.impath] for item in kept]


def _same(item: object, today: object) -> bool:
    return today is not None and all(
        getattr(item, key) == getattr(today, key) for key in ("impath", "label", "classname")
    )


def _misfit(origin: Path, why: str) -> UserError:
    return UserError(
        f"The few-shot draw that is kept in {origin} does not fit the dataset: {why}. The classes, their names or the "
        "splits were others when it was made. Delete that file to have others drawn, or restore what it was drawn from."
    )
