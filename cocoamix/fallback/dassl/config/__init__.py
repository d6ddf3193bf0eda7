"""Default configuration."""

from __future__ import annotations

from yacs.config import CfgNode

from .defaults import cfg_default
from .unsupported import refuse_unsupported

__all__ = ["cfg_default", "get_cfg_default", "refuse_unsupported"]


def get_cfg_default() -> CfgNode:
    """Return a fresh copy of the defaults; changing it does not touch the next one."""
    return cfg_default.clone()
