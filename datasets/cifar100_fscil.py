"""CIFAR-100 for class-incremental learning: the official archive and the published few images of each session.

60 base classes with all their 500 images, then eight sessions of five classes with five images each. Most papers use
the images that TOPIC and CEC publish as positions in the archive's train array; `cifar100_fscil.json` has these lists.
They are checked against the hashes of the published files and the labels at their positions. The archive is checked by
its class names and the number of images per class.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.clip.class_names import class_words
from cocoamix.errors import UserError
from cocoamix.fscil.split import SessionSplit, label_ranges
from cocoamix.registry import register

from .cifar100 import CIFAR100, read_images, read_names
from .common.base import Items
from .common.session_lists import check_list, not_as_published, read_facts, refuse_other_split

LISTS = Path(__file__).with_name("cifar100_fscil.json")
BASE, WAY, SHOTS, SESSIONS = 60, 5, 5, 8  # of the published lists
IMAGES = {"train": 500, "test": 100}  # of each class
OFFICIAL = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}  # MD5


@register(DATASET_REGISTRY)
class CIFAR100FSCIL(CIFAR100):
    """All 50,000 training images in the archive's order; none are for validation, because the protocol uses all."""

    def read_items(self) -> tuple[Items, Items, Items]:
        archive = self._find_archive()
        names = read_names(archive)
        check_names(names)
        train, test = (read_images(archive / split, names) for split in ("train", "test"))
        for split, items in (("train", train), ("test", test)):
            check_counts(split, [item.label for item in items])
            note_if_altered(archive / split)
        return train, [], test

    def published_shots(self, how: SessionSplit) -> list[Items]:
        """Return the published items of sessions 1 to 8."""
        refuse_other_split(how, (BASE, WAY, SHOTS))
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
    """Return the positions of each session's images; refuse an altered file."""
    sessions: list[dict[str, Any]] = _published(path, "sessions")
    try:
        lists = [[int(position) for position in session["positions"]] for session in sessions]
        hashes = [session["md5"] for session in sessions]
    except (ValueError, KeyError, TypeError) as error:
        raise not_as_published(path, error) from error
    if len(lists) != SESSIONS:
        raise UserError(f"{path} is altered: it has {len(lists)} lists instead of {SESSIONS}. Restore it.")
    for number, (positions, md5) in enumerate(zip(lists, hashes, strict=True), 1):
        check_list(path, number, positions, md5)
    return lists


def official_names(path: Path = LISTS) -> list[str]:
    """Return the names of the hundred classes in the order of their labels, with spaces."""
    return [class_words(str(name)) for name in _published(path, "classes")]


def _published(path: Path, key: str) -> list[Any]:
    found = read_facts(path).get(key)
    if not isinstance(found, list):
        raise not_as_published(path, TypeError(f"{key} is not a list"))
    return found


def check_names(names: list[str]) -> None:
    """Refuse an archive with other class names: sessions are divided by label, and prompts use the names."""
    official = official_names()
    if len(names) != len(official):
        raise UserError(f"The archive's meta names {len(names)} classes, not CIFAR-100's {len(official)}.")
    for label, (name, wanted) in enumerate(zip(names, official, strict=True)):
        if name != wanted:
            raise UserError(
                f"The archive's meta calls class {label} {name!r}, but CIFAR-100's class {label} is {wanted!r}: "
                "this is not the official archive, or its meta was changed. Unpack the archive again."
            )


def check_counts(split: str, labels: list[int]) -> None:
    """Refuse an incomplete archive, or one with other labels."""
    counts = Counter(labels)
    for label, name in enumerate(official_names()):
        if counts[label] != IMAGES[split]:
            raise UserError(
                f"The archive's {split} has {counts[label]} images of class {label} ({name}), not CIFAR-100's "
                f"{IMAGES[split]}: this is not the official archive, or not all of it. Unpack the archive again."
            )


def note_if_altered(path: Path) -> None:
    """Print a note if a file is not the official one, because counts do not reveal exchanged labels.

    The file is not refused: if the same labels and images are pickled again, the hash changes.
    """
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        for block in iter(lambda: file.read(2**20), b""):
            digest.update(block)
    if digest.hexdigest() != OFFICIAL[path.name]:
        print(
            f"Note: {path} is not byte for byte the official file, whose MD5 is {OFFICIAL[path.name]}. If its "
            "labels or images differ, the accuracies are not comparable with published ones."
        )


def check_labels(labels: list[int], lists: list[list[int]]) -> None:
    """Refuse an archive in another order, in which the listed images have other classes."""
    _, *novel = label_ranges(100, SessionSplit(BASE, WAY, SHOTS))
    for number, (positions, wanted) in enumerate(zip(lists, novel, strict=True), 1):
        found = Counter(labels[position] for position in positions)
        if found != dict.fromkeys(wanted, SHOTS):
            raise UserError(
                f"The published list of session {number} should have {SHOTS} images of each label {wanted.start} to "
                f"{wanted.stop - 1} in the train array, but has {dict(sorted(found.items()))}: the array is not in "
                "the order of the official archive."
            )
