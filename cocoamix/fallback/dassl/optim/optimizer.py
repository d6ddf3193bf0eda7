"""Optimizers."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from dassl.utils import UnknownNameError, check_availability
from torch import nn
from yacs.config import CfgNode

AVAI_OPTIMS = ["adam", "amsgrad", "sgd", "rmsprop", "radam", "adamw"]


def build_optimizer(
    model: nn.Module | Iterable[Any], optim_cfg: CfgNode, param_groups: Iterable[Any] | None = None
) -> torch.optim.Optimizer:
    """Build the optimizer of a model, of an iterable of parameters, or of `param_groups` if given."""
    check_availability(optim_cfg.NAME, AVAI_OPTIMS, "OPTIM.NAME")
    if param_groups is not None:
        if optim_cfg.STAGED_LR:
            warnings.warn("OPTIM.STAGED_LR has no effect where parameter groups are given.", stacklevel=2)
        params: Any = param_groups
    elif optim_cfg.STAGED_LR:
        params = _staged_groups(model, optim_cfg)
    else:
        params = model.parameters() if isinstance(model, nn.Module) else model

    common = {"lr": optim_cfg.LR, "weight_decay": optim_cfg.WEIGHT_DECAY}
    betas = (optim_cfg.ADAM_BETA1, optim_cfg.ADAM_BETA2)
    if optim_cfg.NAME == "sgd":
        return torch.optim.SGD(
            params,
            momentum=optim_cfg.MOMENTUM,
            dampening=optim_cfg.SGD_DAMPNING,
            nesterov=optim_cfg.SGD_NESTEROV,
            **common,
        )
    if optim_cfg.NAME == "rmsprop":
        return torch.optim.RMSprop(params, momentum=optim_cfg.MOMENTUM, alpha=optim_cfg.RMSPROP_ALPHA, **common)
    if optim_cfg.NAME == "adamw":
        return torch.optim.AdamW(params, betas=betas, **common)
    if optim_cfg.NAME == "radam":
        return torch.optim.RAdam(params, betas=betas, **common)
    return torch.optim.Adam(params, betas=betas, amsgrad=optim_cfg.NAME == "amsgrad", **common)


def _staged_groups(model: nn.Module | Iterable[Any], optim_cfg: CfgNode) -> list[dict[str, Any]]:
    """Two groups: the layers that are there already, at a smaller rate, and the new ones."""
    if not isinstance(model, nn.Module):
        raise TypeError("OPTIM.STAGED_LR needs the model itself, not its parameters")
    inner: nn.Module = model.module if isinstance(model, nn.DataParallel) else model
    wanted = [optim_cfg.NEW_LAYERS] if isinstance(optim_cfg.NEW_LAYERS, str) else list(optim_cfg.NEW_LAYERS)
    base: list[nn.Parameter] = []
    new: list[nn.Parameter] = []
    # By the first part of the name, so that a parameter of the model itself is trained as well.
    for name, parameter in inner.named_parameters():
        (new if name.split(".")[0] in wanted else base).append(parameter)
    if not new:
        known = ", ".join(dict.fromkeys(name.split(".")[0] for name, _ in inner.named_parameters()))
        raise UnknownNameError(f"OPTIM.NEW_LAYERS {wanted} names no layer of the model. Its layers: {known}.")
    return [{"params": base, "lr": optim_cfg.LR * optim_cfg.BASE_LR_MULT}, {"params": new}]
