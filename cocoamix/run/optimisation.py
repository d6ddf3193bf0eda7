"""Builds optimizers, and takes a step with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dassl.optim import build_optimizer
from torch import nn
from yacs.config import CfgNode

from cocoamix.errors import UserError

from .parameter_groups import parameter_groups
from .schedules import build_schedule


def make_optimizer(name: str, model: nn.Module, optim: CfgNode) -> tuple[Any, Any]:
    """Return the optimizer and the schedule of a model.

    Args:
        name: Registered name of the model.
        model: The model.
        optim: A node like OPTIM.
    """
    try:
        optimizer = _build_staged(name, model, optim) if optim.STAGED_LR else build_optimizer(model, optim)
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"The optimizer {optim.NAME} cannot be built from OPTIM.*: {error}.") from error
    return optimizer, build_schedule(optimizer, optim)


def _build_staged(name: str, model: nn.Module, optim: CfgNode) -> Any:
    """Build the optimizer of OPTIM.STAGED_LR from our own parameter groups, and print the rates."""
    groups = parameter_groups(model, optim, name)
    for group in groups:
        count = sum(parameter.numel() for parameter in group["params"])
        print(f"OPTIM.STAGED_LR is True: {count:,} parameters of {name} learn at {group['lr']:g}")
    plain = optim.clone()
    plain.defrost()
    plain.STAGED_LR = False  # or Dassl would make its own groups
    return build_optimizer(groups, plain)


def step(optimizers: Iterable[Any], scaler: Any | None) -> None:
    """Step every optimizer, through the loss scaler if there is one."""
    if scaler is None:
        for optimizer in optimizers:
            optimizer.step()
        return
    for optimizer in optimizers:
        if any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
            scaler.step(optimizer)  # fails for an optimizer without gradients
    scaler.update()


def diverged(summary: Mapping[str, float], where: str, advice: str) -> UserError:
    """Return the error for a loss that is not finite.

    Args:
        summary: The terms of the loss by name.
        where: The step, for the message.
        advice: What to try, for the message.
    """
    bad = [name for name, value in summary.items() if not math.isfinite(value)]
    # The total is infinite if any term is: name the term.
    term = next((name for name in bad if name != "loss"), "loss")
    return UserError(
        f"The loss is not finite: {term} is {summary[term]} at {where}. "
        f"Nothing was saved since the last complete epoch. Try {advice}."
    )
