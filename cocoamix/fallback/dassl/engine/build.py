"""Builds the trainer that a configuration names."""

from __future__ import annotations

from typing import Any

from dassl.utils import Registry, check_availability
from yacs.config import CfgNode

from cocoamix.io.screen import detail

TRAINER_REGISTRY = Registry("TRAINER")


def build_trainer(cfg: CfgNode) -> Any:
    """Return the trainer."""
    name = cfg.TRAINER.NAME
    check_availability(name, TRAINER_REGISTRY.registered_names(), "TRAINER.NAME")
    if cfg.VERBOSE:
        detail(f"Trainer: {name}")
    return TRAINER_REGISTRY.get(name)(cfg)
