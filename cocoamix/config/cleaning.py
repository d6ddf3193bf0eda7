"""Keeps our sections of TRAINER when a train.py, such as DePT's, removes sections with Dassl's `clean_cfg`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from yacs.config import CfgNode

from .table import KEYS

_SECTIONS = frozenset(key.path[1] for key in KEYS if key.ours and key.path[0] == "TRAINER" and len(key.path) > 2)


def keep_our_sections(config: ModuleType) -> None:
    """Make Dassl's `clean_cfg`, if it has one, keep our sections.

    It is also replaced in modules that have already imported it, such as a train.py.

    Args:
        config: The module `dassl.config`.
    """
    original = getattr(config, "clean_cfg", None)
    if original is None or hasattr(original, "__wrapped__"):
        return
    keeping = _keeping(original)
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("clean_cfg") is original:
            module.clean_cfg = keeping  # type: ignore[attr-defined]


def _keeping(clean: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(clean)
    def clean_cfg(cfg: CfgNode, trainer: str) -> None:
        ours = {name: node for name, node in cfg.TRAINER.items() if name in _SECTIONS}
        clean(cfg, trainer)
        for name, node in ours.items():
            if name not in cfg.TRAINER:
                cfg.TRAINER[name] = node

    return clean_cfg
