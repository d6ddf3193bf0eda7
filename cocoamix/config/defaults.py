"""Adding our keys, with their defaults, to Dassl's."""

from __future__ import annotations

import copy
from typing import Any

from yacs.config import CfgNode

from .key import Key
from .table import KEYS


def extend_cfg(cfg: CfgNode, below: str = "") -> None:
    """Add our keys to Dassl's defaults. A key that is there already, from another code base, stays as it is.

    below: a section such as "DATASET."; without it, all of them.
    """
    for key in KEYS:
        if key.ours and key.name.startswith(below):
            _add(cfg, key, key.default)


def complete(cfg: CfgNode) -> CfgNode:
    """Return a configuration with every key that our trainers read; what is there stays as it is.

    Another code base's train.py knows nothing of our keys: it may make TRAINER.COOP anew with its own alone. Keys that
    an older Dassl lacks are added here and not among the defaults, so that setting one there is refused instead of
    having no effect.
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
        node[leaf] = copy.deepcopy(value)  # a list of the table must not be changed through a configuration
