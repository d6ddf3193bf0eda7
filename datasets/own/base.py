"""The base of datasets of the user's own images: splits and class names."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dassl.data.datasets import Datum

from cocoamix.errors import UserError
from cocoamix.io.paths import expand_home

from ..common.base import FewShotDataset, Items
from ..common.doubts import refuse_shared_files
from .class_names import read_names, refuse_same_names

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True)
class OwnImage:
    """An image before labels are assigned: its file, its class and its split."""

    path: str
    key: str  # the path below the dataset's folder, which does not depend on the data root
    category: str
    split: str = ""  # train, val, test, or empty if the user made no split


class OwnDatum(Datum):
    """An item of the user's own images, which are rotated by their EXIF orientation."""

    upright = True


def _item(path: str, label: int, classname: str) -> Datum:
    # Not Datum(...), which checks the file: a list may name missing files.
    item = OwnDatum.__new__(OwnDatum)
    item._impath, item._label, item._domain, item._classname = path, label, 0, classname
    return item


class OwnDataset(FewShotDataset):
    """The user's own images in a folder: DATASET.ROOT, or DATASET.FOLDER below it."""

    own_keys: tuple[str, ...] = ("FOLDER", "CLASSNAMES")

    category = "class"  # how messages call a class, such as "folder"
    names_are_chosen = True

    def find_images(self, folder: Path) -> list[OwnImage]:
        """Return every image, in a fixed order."""
        raise NotImplementedError(f"{type(self).__name__} defines no find_images")

    def plain_names(self, categories: Sequence[str]) -> dict[str, str]:
        """Return the class name of each category, for an empty DATASET.CLASSNAMES."""
        raise NotImplementedError(f"{type(self).__name__} defines no plain_names")

    def order(self, categories: Sequence[str]) -> list[str]:
        """Return the categories in the order of their labels."""
        return sorted(categories)

    def read_items(self) -> tuple[Items, Items, Items]:
        folder = self._own_folder()
        self.dataset_dir = str(folder)
        images = self.find_images(folder)
        categories = self.order(list(dict.fromkeys(image.category for image in images)))
        if len(categories) < 2:
            raise UserError(f"{folder} has one class, {categories[0]!r}. A classifier needs two.")
        names = self._class_names(folder, categories)
        refuse_same_names(names, self.category)
        self.categories = {category: names[category] for category in categories}
        splits = self._splits(images, categories)
        refuse_shared_files(str(folder), {split: [one.path for one in listed] for split, listed in splits.items()})
        labels = {category: label for label, category in enumerate(categories)}
        train, val, test = (
            [
                _item(one.path, labels[one.category], names[one.category])
                for one in sorted(splits[split], key=lambda one: (labels[one.category], one.key))
            ]
            for split in ("train", "val", "test")
        )
        print(f"{folder}: {len(categories)} classes, {len(train)} train, {len(val)} val, {len(test)} test images")
        return train, val, test

    def _own_folder(self) -> Path:
        settings, name = self.cfg.DATASET, type(self).__name__
        if not settings.ROOT and not os.path.isabs(settings.FOLDER):
            raise UserError(f"{name} needs a folder of images: give --root DIR.")
        folder = expand_home(settings.ROOT).resolve() / expand_home(settings.FOLDER)
        if not folder.is_dir():
            key = "DATASET.FOLDER, below --root" if settings.FOLDER else "--root"
            raise UserError(f"There is no folder {folder} ({key}).")
        return folder

    def _class_names(self, folder: Path, categories: Sequence[str]) -> Mapping[str, str]:
        given = self.cfg.DATASET.CLASSNAMES
        if not given:
            return self.plain_names(categories)
        beside = folder / expand_home(given)
        return read_names(beside if beside.is_file() else expand_home(given), categories, self.category)

    # ------------------------------------------------------------------ splits

    def _splits(self, images: Sequence[OwnImage], categories: Sequence[str]) -> dict[str, list[OwnImage]]:
        """Return the user's splits, or divide each class by DATASET.SPLIT."""
        splits: dict[str, list[OwnImage]] = {"train": [], "val": [], "test": []}
        for image in images:
            splits[image.split or "train"].append(image)
        given = [split for split, listed in splits.items() if listed]
        if given == ["train"]:
            return self._divide(splits["train"], categories)
        if "train" not in given:
            raise UserError(f"There are {' and '.join(given)} images, but no train images. Name a train split.")
        if "test" not in given:
            # As CoOp does for ImageNet. val is left empty, so that no model is selected on test images.
            print("There is no test split: the val images are used for testing, and no model is selected on them")
            splits["test"], splits["val"] = splits["val"], []
        self._refuse_holes(splits, categories)
        return splits

    def _refuse_holes(self, splits: Mapping[str, Sequence[OwnImage]], categories: Sequence[str]) -> None:
        counts = {split: Counter(one.category for one in listed) for split, listed in splits.items()}
        for category in categories:
            if not counts["train"][category]:
                where = " and ".join(split for split in ("val", "test") if counts[split][category])
                raise UserError(
                    f"The {self.category} {category!r} has {where} images but no train images. "
                    "Every class needs at least one."
                )
        untested = [category for category in categories if not counts["test"][category]]
        if untested:
            print(f"{len(untested)} classes have no test images; the first is {untested[0]!r}")

    def _divide(self, images: Sequence[OwnImage], categories: Sequence[str]) -> dict[str, list[OwnImage]]:
        shares = list(self.cfg.DATASET.SPLIT)
        numbers = all(type(share) in (int, float) for share in shares)
        if (
            not numbers
            or len(shares) != 3
            or min(shares) < 0
            or not math.isclose(sum(shares), 1, abs_tol=1e-6)
            or 0 in shares[::2]
        ):
            raise UserError(
                f"DATASET.SPLIT is {shares}; it must be the shares of train, val and test, such as [0.5, 0.2, 0.3], "
                "which sum to 1. Only val may be 0."
            )
        splits: dict[str, list[OwnImage]] = {"train": [], "val": [], "test": []}
        by_category: dict[str, list[OwnImage]] = {category: [] for category in categories}
        for image in images:
            by_category[image.category].append(image)
        for category, listed in by_category.items():
            if len(listed) < 2:
                raise UserError(
                    f"The {self.category} {category!r} has one image, but without a test split each class needs "
                    "one to train and one to test. Add images, or make train and test folders."
                )
            test, val = max(1, round(len(listed) * shares[2])), round(len(listed) * shares[1])
            val = min(val, len(listed) - test - 1)
            # Ordered by a hash of the path: the same on every machine and for every seed, whatever the file names.
            drawn = sorted(listed, key=lambda one: hashlib.sha256(one.key.encode("utf-8", "surrogateescape")).digest())
            splits["test"] += drawn[:test]
            splits["val"] += drawn[test : test + val]
            splits["train"] += drawn[test + val :]
        print(
            f"There are no splits: each class is divided {' / '.join(f'{share:g}' for share in shares)} into train, "
            "val and test (DATASET.SPLIT), in the order of the SHA-256 of the images' paths, independent of the seed"
        )
        return splits
