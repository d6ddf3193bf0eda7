"""Builds the dataset that a configuration names."""

from __future__ import annotations

from typing import Any

from dassl.utils import Registry, check_availability
from yacs.config import CfgNode

from cocoamix.io.screen import detail

DATASET_REGISTRY = Registry("DATASET")


def build_dataset(cfg: CfgNode) -> Any:
    """Return the dataset."""
    name = cfg.DATASET.NAME
    check_availability(name, DATASET_REGISTRY.registered_names(), "DATASET.NAME")
    if cfg.VERBOSE:
        detail(f"Dataset: {name}")
    return DATASET_REGISTRY.get(name)(cfg)
