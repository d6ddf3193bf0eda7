"""The evaluator a config names."""

from __future__ import annotations

from typing import Any

from dassl.utils import Registry, check_availability
from yacs.config import CfgNode

EVALUATOR_REGISTRY = Registry("EVALUATOR")


def build_evaluator(cfg: CfgNode, **kwargs: Any) -> Any:
    name = cfg.TEST.EVALUATOR
    check_availability(name, EVALUATOR_REGISTRY.registered_names(), "TEST.EVALUATOR")
    if cfg.VERBOSE:
        print(f"Evaluator: {name}")
    return EVALUATOR_REGISTRY.get(name)(cfg, **kwargs)
