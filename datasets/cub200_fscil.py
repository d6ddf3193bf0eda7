"""CUB-200-2011 for class-incremental learning: the official archive and the published few images of each session.

100 base classes of birds with all their training images, about 30 each, then ten sessions of ten classes with five
images each. Training and test images are the official ones. `cub200_fscil.json` has the lists.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.clip.class_names import class_words
from cocoamix.errors import UserError
from cocoamix.registry import register

from .common.items import read_lines
from .common.session_lists import PublishedSessions, Rows

IMAGES, LABELS, SPLIT = "images.txt", "image_class_labels.txt", "train_test_split.txt"


@register(DATASET_REGISTRY)
class CUB200FSCIL(PublishedSessions):
    """11,788 images in one folder per class; three tables list their numbers, classes and splits."""

    folder = "CUB_200_2011"
    image_folder = "images"
    lists = Path(__file__).with_name("cub200_fscil.json")
    advice = "Unpack CUB_200_2011.tgz again."

    @classmethod
    def class_of(cls, entry: Any) -> tuple[str, str]:
        found = re.fullmatch(r"\d{3}\.(\w+)", entry)
        if found is None:
            raise ValueError(f"a class is {entry!r}")
        return str(entry), class_words(found[1])

    @classmethod
    def file_name(cls, category: str, image: Any) -> str:
        """Return the file name, in which each word has a capital, unlike in the folder 010.Red_winged_Blackbird."""
        words = category.partition(".")[2].split("_")
        return "_".join([*(word[:1].upper() + word[1:] for word in words), f"{image}.jpg"])

    @classmethod
    def published_line(cls, split: str, category: str, name: str) -> str:
        return f"CUB_200_2011/images/{category}/{name}"

    def path_of(self, folder: Path, category: str, name: str) -> str:
        return os.path.join(folder, self.image_folder, category, name)

    def read_rows(self) -> tuple[Path, dict[str, tuple[Path, Rows]]]:
        folder = self.find_folder(self.image_folder, IMAGES, LABELS, SPLIT)
        images = read_table(folder / IMAGES, r"[^/\\]+/[^/\\]+", "a number and class folder/file name")
        labels = read_table(folder / LABELS, r"\d{1,9}", "an image's number and a class's number")
        for_training = read_table(folder / SPLIT, "[01]", "an image's number and 1 (train) or 0 (test)")
        for name, table in ((LABELS, labels), (SPLIT, for_training)):
            if table.keys() != images.keys():
                number = min(table.keys() ^ images.keys())
                raise UserError(
                    f"{folder / name} and {folder / IMAGES} do not list the same images: the number {number} is in "
                    f"only one of them. {self.advice}"
                )
        rows: dict[str, Rows] = {"train": [], "test": []}
        for number, path in images.items():
            category, name = path.split("/")
            numbered = re.match(r"\d{1,9}(?=\.)", category)
            if numbered is None or int(numbered[0]) != int(labels[number]):
                raise UserError(
                    f"{folder / LABELS} gives image {number} the class {labels[number]}, but {folder / IMAGES} has it "
                    f"in {category}. {self.advice}"
                )
            rows["train" if for_training[number] == "1" else "test"].append((category, name))
        return folder, {split: (folder / SPLIT, found) for split, found in rows.items()}


def read_table(path: Path, form: str, description: str) -> dict[int, str]:
    """Return a value for each image's number, in the order of the file."""

    def parse(line: str) -> tuple[int, str]:
        number, value = line.split(" ")
        if not re.fullmatch(r"\d{1,9}", number) or not re.fullmatch(form, value) or len(value) > 300:
            raise ValueError
        return int(number), value

    rows = read_lines(path, parse, description)
    ((number, count),) = Counter(number for number, _ in rows).most_common(1)
    if count > 1:
        raise UserError(f"{path} has the image number {number} {count} times. Unpack CUB_200_2011.tgz again.")
    return dict(rows)
