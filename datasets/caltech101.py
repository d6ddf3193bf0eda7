"""Caltech101: a hundred kinds of objects."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.registry import register

from .common.base import SplitDataset, SplitItems
from .common.splits import split_folders

IGNORED = ("BACKGROUND_Google", "Faces_easy")
RENAMED = {"airplanes": "airplane", "Faces": "face", "Leopards": "leopard", "Motorbikes": "motorbike"}


@register(DATASET_REGISTRY)
class Caltech101(SplitDataset):
    """The background class and the second set of faces are left out, which leaves 100 classes."""

    folder = "caltech-101"
    image_folder = "101_ObjectCategories"
    split_file = "split_zhou_Caltech101.json"

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        return split_folders(images, ignored=IGNORED, renamed=RENAMED)
