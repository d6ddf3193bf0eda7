"""Default configuration."""

from __future__ import annotations

from yacs.config import CfgNode

from .defaults import cfg_default

__all__ = ["cfg_default", "clean_cfg", "get_cfg_default"]


def get_cfg_default() -> CfgNode:
    """Return a fresh copy of the defaults; changing it does not touch the next one."""
    return cfg_default.clone()


def clean_cfg(cfg: CfgNode, trainer: str) -> None:
    """Drop the settings of every trainer but `trainer`, so that a printed config is short."""
    for key in set(cfg.TRAINER) - {"NAME", trainer.upper()}:
        del cfg.TRAINER[key]
