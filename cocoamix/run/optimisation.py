"""Builds optimizers, and takes a step with them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from yacs.config import CfgNode

from cocoamix.choices import OPTIMIZERS
from cocoamix.errors import UserError, check_choice

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
        groups = _staged_groups(name, model, optim) if optim.STAGED_LR else model.parameters()
        optimizer = build_optimizer(groups, optim)
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"The optimizer {optim.NAME} cannot be built from OPTIM.*: {error}.") from error
    return optimizer, build_schedule(optimizer, optim)


def _staged_groups(name: str, model: nn.Module, optim: CfgNode) -> list[dict[str, Any]]:
    """Return the parameter groups of OPTIM.STAGED_LR, and print their rates."""
    groups = parameter_groups(model, optim, name)
    for group in groups:
        count = sum(parameter.numel() for parameter in group["params"])
        print(f"OPTIM.STAGED_LR is True: {count:,} parameters of {name} learn at {group['lr']:g}")
    return groups


def build_optimizer(params: Iterable[Any], optim: CfgNode) -> torch.optim.Optimizer:
    """Return the optimizer of parameters or groups of them."""
    check_choice("OPTIM.NAME", optim.NAME, OPTIMIZERS)
    common = {"lr": optim.LR, "weight_decay": optim.WEIGHT_DECAY}
    betas = (optim.ADAM_BETA1, optim.ADAM_BETA2)
    if optim.NAME == "sgd":
        return torch.optim.SGD(
            params,
            momentum=optim.MOMENTUM,
            dampening=optim.SGD_DAMPNING,
            nesterov=optim.SGD_NESTEROV,
            **common,
        )
    if optim.NAME == "rmsprop":
        return torch.optim.RMSprop(params, momentum=optim.MOMENTUM, alpha=optim.RMSPROP_ALPHA, **common)
    if optim.NAME == "adamw":
        return torch.optim.AdamW(params, betas=betas, **common)
    if optim.NAME == "radam":
        return torch.optim.RAdam(params, betas=betas, **common)
    return torch.optim.Adam(params, betas=betas, amsgrad=optim.NAME == "amsgrad", **common)


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
