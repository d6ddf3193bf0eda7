"""DTD, describable textures: 47 kinds of textures."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.registry import register

from .common.base import SplitDataset, SplitItems
from .common.splits import split_folders


@register(DATASET_REGISTRY)
class DescribableTextures(SplitDataset):
    """Class names are adjectives, so the template is "{} texture."."""

    folder = "dtd"
    image_folder = "images"
    split_file = "split_zhou_DescribableTextures.json"

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        return split_folders(images)
