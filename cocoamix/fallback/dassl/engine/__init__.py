"""The registry of trainers."""

from __future__ import annotations

from typing import Any

from dassl.utils import Registry
from yacs.config import CfgNode

from cocoamix.errors import check_choice

TRAINER_REGISTRY = Registry("TRAINER")


def build_trainer(cfg: CfgNode) -> Any:
    """Return the trainer that a configuration names."""
    check_choice("TRAINER.NAME", cfg.TRAINER.NAME, TRAINER_REGISTRY.registered_names())
    return TRAINER_REGISTRY.get(cfg.TRAINER.NAME)(cfg)


__all__ = ["TRAINER_REGISTRY", "build_trainer"]
