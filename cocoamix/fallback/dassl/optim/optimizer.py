"""Optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from dassl.utils import check_availability
from torch import nn
from yacs.config import CfgNode

from cocoamix.run.parameter_groups import parameter_groups

AVAI_OPTIMS = ["adam", "amsgrad", "sgd", "rmsprop", "radam", "adamw"]


def build_optimizer(model: nn.Module | Iterable[Any], optim_cfg: CfgNode) -> torch.optim.Optimizer:
    """Build the optimizer of a model, or of an iterable of parameters."""
    check_availability(optim_cfg.NAME, AVAI_OPTIMS, "OPTIM.NAME")
    params: Iterable[Any]
    if not isinstance(model, nn.Module):
        params = model
    else:
        params = parameter_groups(model, optim_cfg) if optim_cfg.STAGED_LR else model.parameters()
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
