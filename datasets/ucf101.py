"""UCF101: a hundred and one actions, as the middle frames of videos."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY, Datum

from cocoamix.registry import register

from .common.base import Items, SplitDataset, SplitItems
from .common.items import new_item, read_lines
from .common.splits import split_trainval


@register(DATASET_REGISTRY)
class UCF101(SplitDataset):
    """Class names and folders separate the words of an action by underscores: Apply_Eye_Makeup."""

    folder = "ucf101"
    image_folder = "UCF-101-midframes"
    split_file = "split_zhou_UCF101.json"

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        lists = folder / "ucfTrainTestlist"
        labels = dict(read_lines(lists / "classInd.txt", _class, "a number and an action"))
        trainval, test = (_read_list(lists / name, images, labels) for name in ("trainlist01.txt", "testlist01.txt"))
        train, val = split_trainval(trainval)
        return train, val, test


def _class(line: str) -> tuple[str, int]:
    number, action = line.split(" ")
    return action, int(number) - 1


def _read_list(path: Path, images: Path, labels: dict[str, int]) -> Items:
    def parse(line: str) -> Datum:
        action, video = line.split(" ")[0].split("/")  # training lists also have the class number
        name = "_".join(re.findall("[A-Z][^A-Z]*", action))
        return new_item(os.path.join(images, name, video.replace(".avi", ".jpg")), labels[action], name)

    return read_lines(path, parse, "a video of an action of classInd.txt")
