"""What one's own pictures share, whether folders or a table name them: splits and class names."""

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
class Picture:
    """A picture before it has a label: its file, and its class and split as the user has them."""

    path: str
    key: str  # identifies it whatever the data root is: the path below the dataset's folder
    category: str
    split: str = ""  # train, val, test, or nothing if the user made no split


class OwnDataset(FewShotDataset):
    """Pictures in a folder of the user's: DATASET.ROOT, or DATASET.FOLDER below it."""

    own_keys: tuple[str, ...] = ("FOLDER", "CLASSNAMES")

    category = "class"  # how the user tells a class: a folder, or a cell of a table

    def find_pictures(self, folder: Path) -> list[Picture]:
        """Return every picture, in a fixed order."""
        raise NotImplementedError(f"{type(self).__name__} defines no find_pictures")

    def plain_names(self, categories: Sequence[str]) -> dict[str, str]:
        """Return the class names where DATASET.CLASSNAMES gives none."""
        raise NotImplementedError(f"{type(self).__name__} defines no plain_names")

    def order(self, categories: Sequence[str]) -> list[str]:
        """Return the classes in the order of their labels."""
        return sorted(categories)

    def read_items(self) -> tuple[Items, Items, Items]:
        folder = self._own_folder()
        self.dataset_dir = str(folder)
        pictures = self.find_pictures(folder)
        categories = self.order(list(dict.fromkeys(picture.category for picture in pictures)))
        if len(categories) < 2:
            raise UserError(f"{folder} has one class, {categories[0]!r}. A classifier needs two.")
        names = self._class_names(folder, categories)
        refuse_same_names(names, self.category)
        splits = self._splits(pictures, categories)
        labels = {category: label for label, category in enumerate(categories)}
        train, val, test = (
            [
                Datum(impath=one.path, label=labels[one.category], classname=names[one.category])
                for one in sorted(splits[split], key=lambda one: (labels[one.category], one.key))
            ]
            for split in ("train", "val", "test")
        )
        print(f"{folder}: {len(categories)} classes, {len(train)} train, {len(val)} val, {len(test)} test pictures")
        return train, val, test

    def _own_folder(self) -> Path:
        settings, name = self.cfg.DATASET, type(self).__name__
        if not settings.ROOT and not os.path.isabs(settings.FOLDER):
            raise UserError(f"{name} needs a folder of pictures: give --root DIR.")
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

    def _splits(self, pictures: Sequence[Picture], categories: Sequence[str]) -> dict[str, list[Picture]]:
        """Return the user's splits, or divide each class by the shares of DATASET.SPLIT."""
        splits: dict[str, list[Picture]] = {"train": [], "val": [], "test": []}
        for picture in pictures:
            splits[picture.split or "train"].append(picture)
        given = [split for split, listed in splits.items() if listed]
        if given == ["train"]:
            return self._divide(splits["train"], categories)
        if "train" not in given:
            raise UserError(f"There are {' and '.join(given)} pictures, but no train pictures. Name a train split.")
        if "test" not in given:
            # What CoOp does with ImageNet. A model chosen on these pictures would be tested on them, so val is empty.
            print("There is no test split: the val pictures are the test pictures, and nothing is chosen on them")
            splits["test"], splits["val"] = splits["val"], []
        self._refuse_holes(splits, categories)
        return splits

    def _refuse_holes(self, splits: Mapping[str, Sequence[Picture]], categories: Sequence[str]) -> None:
        counts = {split: Counter(one.category for one in listed) for split, listed in splits.items()}
        for category in categories:
            if not counts["train"][category]:
                where = " and ".join(split for split in ("val", "test") if counts[split][category])
                raise UserError(
                    f"The {self.category} {category!r} has {where} pictures but no train pictures. "
                    "Every class needs at least one."
                )
        untested = [category for category in categories if not counts["test"][category]]
        if untested:
            print(f"{len(untested)} classes have no test pictures, the first is {untested[0]!r}")

    def _divide(self, pictures: Sequence[Picture], categories: Sequence[str]) -> dict[str, list[Picture]]:
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
        splits: dict[str, list[Picture]] = {"train": [], "val": [], "test": []}
        by_category: dict[str, list[Picture]] = {category: [] for category in categories}
        for picture in pictures:
            by_category[picture.category].append(picture)
        for category, listed in by_category.items():
            if len(listed) < 2:
                raise UserError(
                    f"The {self.category} {category!r} has one picture, but there is no test split, and it takes one "
                    "to train and another to test. Add pictures, or make train and test yourself."
                )
            test, val = max(1, round(len(listed) * shares[2])), round(len(listed) * shares[1])
            val = min(val, len(listed) - test - 1)
            # By a hash of the name: the same on every machine and for every seed, and without the pattern of names.
            drawn = sorted(listed, key=lambda one: hashlib.sha256(one.key.encode("utf-8", "surrogateescape")).digest())
            splits["test"] += drawn[:test]
            splits["val"] += drawn[test : test + val]
            splits["train"] += drawn[test + val :]
        print(
            f"There are no splits: each class is divided {' / '.join(f'{share:g}' for share in shares)} into train, "
            "val and test (DATASET.SPLIT), in the order of the SHA-256 of the pictures' paths; seeds do not matter"
        )
        return splits
