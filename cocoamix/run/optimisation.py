"""Optimizers, and one step of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dassl.optim import build_optimizer
from torch import nn
from yacs.config import CfgNode

from cocoamix.errors import UserError

from .schedules import build_schedule


def make_optimizer(model: nn.Module, optim: CfgNode) -> tuple[Any, Any]:
    """Return the optimizer of a model and its schedule, by a node like OPTIM."""
    try:
        optimizer = build_optimizer(model, optim)
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"The optimizer {optim.NAME} cannot be built from OPTIM.*: {error}.") from error
    return optimizer, build_schedule(optimizer, optim)


def step(optimizers: Iterable[Any], scaler: Any | None) -> None:
    """Let every optimizer take its step. scaler: of the loss, in amp."""
    if scaler is None:
        for optimizer in optimizers:
            optimizer.step()
        return
    for optimizer in optimizers:
        if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
            scaler.step(optimizer)  # which refuses an optimizer without gradients
    scaler.update()


def diverged(summary: Mapping[str, float], where: str, way_out: str) -> UserError:
    """Return what is said of a step whose loss is not finite. where, way_out: for the sentence."""
    bad = [name for name, value in summary.items() if not math.isfinite(value)]
    # The total is infinite whenever a term is: name the term.
    term = next((name for name in bad if name != "loss"), "loss")
    return UserError(
        f"The loss is not finite: {term} is {summary[term]} at {where}. "
        f"Nothing was saved since the last whole epoch. Try {way_out}."
    )
