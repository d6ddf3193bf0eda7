"""Builds the evaluator that a configuration names."""

from __future__ import annotations

from collections.abc import Mapping

from dassl.utils import check_availability
from yacs.config import CfgNode

from cocoamix.io.screen import detail

from .evaluator import Classification


def build_evaluator(cfg: CfgNode, lab2cname: Mapping[int, str] | None = None) -> Classification:
    """Return the evaluator. There is only one; others need Dassl itself."""
    check_availability(cfg.TEST.EVALUATOR, [Classification.__name__], "TEST.EVALUATOR")
    if cfg.VERBOSE:
        detail(f"Evaluator: {cfg.TEST.EVALUATOR}")
    return Classification(cfg, lab2cname)
