"""Adds our keys and their defaults to Dassl's."""

from __future__ import annotations

import copy
from typing import Any

from yacs.config import CfgNode

from .key import Key
from .table import KEYS


def extend_cfg(cfg: CfgNode, below: str = "") -> None:
    """Add our keys to Dassl's defaults. A key that another code base has already added is left alone.

    Args:
        cfg: The defaults.
        below: Prefix of the keys to add, such as "DATASET."; by default all keys.
    """
    for key in KEYS:
        if key.ours and key.name.startswith(below):
            _add(cfg, key, key.default)


def complete(cfg: CfgNode) -> CfgNode:
    """Return a configuration with every key that our trainers read. Existing keys are left alone.

    The train.py of another code base does not know our keys and may replace TRAINER.COOP with its own. Keys that an
    older Dassl lacks are added here and not to the defaults, so that setting one is an error rather than ignored.
    """
    full = cfg.clone()
    full.defrost()
    extend_cfg(full)
    for key in KEYS:
        if key.older is not None:
            _add(full, key, key.older)
    if cfg.is_frozen():
        full.freeze()
    return full


def _add(cfg: CfgNode, key: Key, value: Any) -> None:
    *path, leaf = key.path
    node = cfg
    for name in path:
        if name not in node:
            node[name] = CfgNode()
        node = node[name]
    if leaf not in node:
        node[leaf] = copy.deepcopy(value)  # so that a configuration cannot change a list of the table
