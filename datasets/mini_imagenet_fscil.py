"""miniImageNet for class-incremental learning: CEC's layout and the published few images of each session.

60 base classes with all their 500 images, then eight sessions of five classes with five images each. The classes
are a hundred of ImageNet's, with CLIP's names for them. The lists are in `mini_imagenet_fscil.json`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.registry import register

from .common.items import read_lines
from .common.session_lists import PublishedSessions, Rows

HEADER = ("filename", "label")


@register(DATASET_REGISTRY)
class MiniImageNetFSCIL(PublishedSessions):
    """60,000 images of 84 pixels in one folder; two tables list the training and the test images."""

    folder = "miniimagenet"
    image_folder = "images"
    lists = Path(__file__).with_name("mini_imagenet_fscil.json")
    advice = (
        "miniImageNet is also published with other divisions, such as 64, 16 and 20 classes. Move this table "
        "elsewhere, then `cocoamix data download MiniImageNetFSCIL --root DIR` downloads CEC's."
    )

    @classmethod
    def class_of(cls, entry: Any) -> tuple[str, str]:
        number, name = entry
        return str(number), str(name)

    @classmethod
    def file_name(cls, category: str, image: Any) -> str:
        return f"{category}{image:08d}.jpg"

    @classmethod
    def published_line(cls, split: str, category: str, name: str) -> str:
        return f"MINI-ImageNet/{split}/{category}/{name}"

    def path_of(self, folder: Path, category: str, name: str) -> str:
        return os.path.join(folder, self.image_folder, name)

    def read_rows(self) -> tuple[Path, dict[str, tuple[Path, Rows]]]:
        tables = {split: os.path.join("split", f"{split}.csv") for split in ("train", "test")}
        folder = self.find_folder(self.image_folder, *tables.values())
        return folder, {split: (folder / table, read_table(folder / table)) for split, table in tables.items()}


def read_table(path: Path) -> Rows:
    """Return the class and the file name of each image."""

    def parse(line: str) -> tuple[str, str]:
        name, category = (cell.strip() for cell in line.split(","))
        if not name or os.path.basename(name) != name or not category:
            raise ValueError
        return category, name

    rows = read_lines(path, parse, "a file name of images/, a comma and a WordNet number such as n01532829")
    return rows[1:] if rows[0] == HEADER[::-1] else rows
