"""Default configuration."""

from __future__ import annotations

from yacs.config import CfgNode

from .defaults import cfg_default

__all__ = ["cfg_default", "get_cfg_default"]


def get_cfg_default() -> CfgNode:
    """Return a new copy of the defaults."""
    return cfg_default.clone()
