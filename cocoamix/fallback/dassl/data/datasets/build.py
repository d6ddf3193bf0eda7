"""The registry of datasets."""

from __future__ import annotations

from typing import Any

from dassl.utils import Registry
from yacs.config import CfgNode

from cocoamix.errors import check_choice

DATASET_REGISTRY = Registry("DATASET")


def build_dataset(cfg: CfgNode) -> Any:
    """Return the dataset that a configuration names."""
    check_choice("DATASET.NAME", cfg.DATASET.NAME, DATASET_REGISTRY.registered_names())
    return DATASET_REGISTRY.get(cfg.DATASET.NAME)(cfg)
