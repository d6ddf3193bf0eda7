"""OxfordPets: 37 breeds of cats and dogs."""

from __future__ import annotations

import os
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY, Datum

from cocoamix.registry import register

from .common.base import Items, SplitDataset, SplitItems
from .common.items import new_item, read_lines
from .common.splits import split_trainval


@register(DATASET_REGISTRY)
class OxfordPets(SplitDataset):
    """The breed is the part of a file name before the number."""

    folder = "oxford_pets"
    image_folder = "images"
    split_file = "split_zhou_OxfordPets.json"

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        trainval, test = (_read_list(folder / "annotations" / name, images) for name in ("trainval.txt", "test.txt"))
        train, val = split_trainval(trainval)
        return train, val, test


def _read_list(path: Path, images: Path) -> Items:
    def parse(line: str) -> Datum:
        name, label, _species, _breed = line.split(" ")
        breed = name.rpartition("_")[0].lower()
        return new_item(os.path.join(images, f"{name}.jpg"), int(label) - 1, breed)

    return read_lines(path, parse, "an image name, a class number, a species and a breed")
