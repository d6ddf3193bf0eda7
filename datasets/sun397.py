"""SUN397: 397 kinds of scenes."""

from __future__ import annotations

import os
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY, Datum

from cocoamix.registry import register

from .common.base import Items, SplitDataset, SplitItems
from .common.items import new_item, read_lines
from .common.splits import split_trainval


@register(DATASET_REGISTRY)
class SUN397(SplitDataset):
    """A class is a path such as /a/apartment_building/outdoor, and its name is "outdoor apartment_building"."""

    folder = "sun397"
    image_folder = "SUN397"
    split_file = "split_zhou_SUN397.json"

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        classes = read_lines(folder / "ClassName.txt", _without_slash, "a class such as /a/abbey")
        labels = {name: label for label, name in enumerate(classes)}
        trainval, test = (_read_list(folder / name, images, labels) for name in ("Training_01.txt", "Testing_01.txt"))
        train, val = split_trainval(trainval)
        return train, val, test


def _without_slash(line: str) -> str:
    if not line.startswith("/"):
        raise ValueError(line)
    return line[1:]


def _read_list(path: Path, images: Path, labels: dict[str, int]) -> Items:
    def parse(line: str) -> Datum:
        name = _without_slash(line)
        scene = os.path.dirname(name)
        words = scene.split("/")[1:]  # the first is a letter
        return new_item(os.path.join(images, name), labels[scene], " ".join(reversed(words)))

    return read_lines(path, parse, "an image of a class of ClassName.txt")
