"""Food101: a hundred and one dishes."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.registry import register

from .common.base import SplitDataset, SplitItems
from .common.splits import split_folders


@register(DATASET_REGISTRY)
class Food101(SplitDataset):
    """CoOp draws a new split of all 101,000 images and ignores the lists in `meta/`."""

    folder = "food-101"
    image_folder = "images"
    split_file = "split_zhou_Food101.json"

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        return split_folders(images)
