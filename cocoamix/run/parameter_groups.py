"""Parameter groups of optimizers. Every parameter is in one, which Dassl's own groups do not ensure."""

from __future__ import annotations

from typing import Any

from torch import nn
from yacs.config import CfgNode

from cocoamix.errors import UserError


def parameter_groups(model: nn.Module, optim: CfgNode, name: str = "") -> list[dict[str, Any]]:
    """Return the groups of OPTIM.STAGED_LR: LR for NEW_LAYERS, LR x BASE_LR_MULT for the rest.

    NEW_LAYERS lists children of the model, or the model itself by its registered name. Dassl's own groups consist
    of children only and omit parameters of the model itself, such as a learned context.
    """
    listed = [optim.NEW_LAYERS] if isinstance(optim.NEW_LAYERS, str) else list(optim.NEW_LAYERS)
    new: list[nn.Parameter] = []
    base: list[nn.Parameter] = []
    for key, parameter in model.named_parameters():
        (new if name in listed or key.partition(".")[0] in listed else base).append(parameter)
    groups = [{"params": base, "lr": optim.LR * optim.BASE_LR_MULT}, {"params": new, "lr": optim.LR}]
    return [group for group in groups if group["params"]]


def refuse_left_out(name: str, model: nn.Module, optimizer: Any | None) -> None:
    """Refuse an optimizer that lacks a trainable parameter, which would never change."""
    held = {id(parameter) for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]}
    for key, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in held:
            raise UserError(
                f"{name}.{key} would not be trained: it is in no group of the optimizer. Register {name} with an "
                "optimizer of all its parameters, or set requires_grad False for those that stay fixed."
            )
