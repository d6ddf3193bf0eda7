"""CIFAR-100 for class-incremental learning: the official archive and the published few images of each session.

60 base classes with all their 500 images, then eight sessions of five classes with five images. Which five is a list
of positions in the archive's train array that TOPIC and CEC publish and most papers use; they are in
`cifar100_fscil.json`. The lists are checked by the hash of the published files, and by the labels that they meet.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.errors import UserError
from cocoamix.registry import register
from cocoamix.sessions import Cut, label_ranges

from .base import Items
from .cifar100 import CIFAR100, read_names, read_pictures

LISTS = Path(__file__).with_name("cifar100_fscil.json")
BASE, WAY, SHOTS, IMAGES = 60, 5, 5, 500  # what the lists are made for


@register(DATASET_REGISTRY)
class CIFAR100FSCIL(CIFAR100):
    """All 50,000 training images in the archive's order: none is kept for validation, since the protocol uses all."""

    def read_items(self) -> tuple[Items, Items, Items]:
        archive = self._find_archive()
        names = read_names(archive)
        train, test = (read_pictures(archive / split, names) for split in ("train", "test"))
        return train, [], test

    def published_shots(self, cut: Cut) -> list[Items]:
        """Return the published items of sessions 1 to 8."""
        if (cut.base, cut.way, cut.shots) != (BASE, WAY, SHOTS):
            raise UserError(
                f"The published lists are for FSCIL.BASE {BASE}, WAY {WAY} and SHOTS {SHOTS}, not for "
                f"{cut.base}, {cut.way} and {cut.shots}. Set FSCIL.SPLIT random to draw others."
            )
        lists = read_lists()
        train = list(self.train_x)
        if len(train) <= max(map(max, lists)):
            raise UserError(
                f"The published lists name positions up to {max(map(max, lists))} of CIFAR-100's train array, but "
                f"there are {len(train)} images. They need the whole archive and DATASET.NUM_SHOTS -1."
            )
        check_labels([item.label for item in train], lists)
        return [[train[position] for position in positions] for positions in lists]


def read_lists(path: Path = LISTS) -> list[list[int]]:
    """Return the positions of each session's images; refuse a file that is not as it was published."""
    try:
        sessions: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["sessions"]
        lists = [[int(position) for position in session["positions"]] for session in sessions]
        told = [session["md5"] for session in sessions]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} does not hold the published lists ({error}). Restore it.") from error
    for number, (positions, md5) in enumerate(zip(lists, told, strict=True), 1):
        published = "".join(f"{position}\n" for position in positions)
        if hashlib.md5(published.encode(), usedforsecurity=False).hexdigest() != md5:
            raise UserError(f"{path} is altered: the list of session {number} has another hash. Restore it.")
    return lists


def check_labels(labels: list[int], lists: list[list[int]]) -> None:
    """Refuse an archive in another order than the original, whose images would be of other classes."""
    base, *novel = label_ranges(100, Cut(BASE, WAY, SHOTS))
    counts = Counter(labels)
    for label in base:
        if counts[label] != IMAGES:
            raise UserError(
                f"The base class {label} has {counts[label]} training images, and not CIFAR-100's {IMAGES}: "
                "this is not the official archive."
            )
    for number, (positions, wanted) in enumerate(zip(lists, novel, strict=True), 1):
        found = Counter(labels[position] for position in positions)
        if found != dict.fromkeys(wanted, SHOTS):
            raise UserError(
                f"The published list of session {number} should meet {SHOTS} images of each label {wanted.start} to "
                f"{wanted.stop - 1} in the train array, but meets {dict(sorted(found.items()))}: the array is not in "
                "the official archive's order."
            )
