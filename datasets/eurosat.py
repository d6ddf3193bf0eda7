"""EuroSAT: ten kinds of land use, seen from a satellite."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.registry import register

from .common.base import SplitDataset, SplitItems
from .common.splits import split_folders

# CoOp's names, which are also in its split file.
RENAMED = {
    "AnnualCrop": "Annual Crop Land",
    "HerbaceousVegetation": "Herbaceous Vegetation Land",
    "Highway": "Highway or Road",
    "Industrial": "Industrial Buildings",
    "Pasture": "Pasture Land",
    "PermanentCrop": "Permanent Crop Land",
    "Residential": "Residential Buildings",
    "SeaLake": "Sea or Lake",
}


@register(DATASET_REGISTRY)
class EuroSAT(SplitDataset):
    """27,000 satellite images of 64 pixels."""

    folder = "eurosat"
    image_folder = "2750"
    split_file = "split_zhou_EuroSAT.json"

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        return split_folders(images, renamed=RENAMED)
