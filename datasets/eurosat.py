"""EuroSAT: ten kinds of land use, seen from a satellite."""

from __future__ import annotations

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.registry import register

from .base import SplitDataset


@register(DATASET_REGISTRY)
class EuroSAT(SplitDataset):
    """CoOp's split file carries the ten class names as CoOp renames them."""

    folder = "eurosat"
    image_folder = "2750"
    split_file = "split_zhou_EuroSAT.json"
