"""Default configuration."""

from __future__ import annotations

from yacs.config import CfgNode

from .defaults import cfg_default
from .unsupported import refuse_unsupported

__all__ = ["cfg_default", "get_cfg_default", "refuse_unsupported"]


def get_cfg_default() -> CfgNode:
    """Return a new copy of the defaults."""
    return cfg_default.clone()
