"""The optimizers and schedules of a run, and the steps that they take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix.choices import OPTIMIZERS
from cocoamix.errors import UserError, check_choice
from cocoamix.model import Losses

from .movement import ProgressCheck
from .parameter_groups import parameter_groups, refuse_left_out
from .schedules import build_schedule

if TYPE_CHECKING:
    from cocoamix.trainer import CLIPTrainer


class Optimisation:
    """The optimizers and schedules of the parts of a model.

    Args:
        parts: The parts; some exist only in some phases.
        scaler: The loss scaler of mixed precision; None without one.
    """

    def __init__(self, parts: nn.ModuleDict, scaler: Any | None = None) -> None:
        self.parts, self.scaler = parts, scaler
        self.optimizers: dict[str, Any] = {}
        self.schedules: dict[str, Any] = {}
        self._check = ProgressCheck()

    def add(self, optims: Mapping[str, CfgNode]) -> None:
        """Build the optimizers of the parts that exist and have none yet."""
        for name, optim in optims.items():
            if name in self.parts and name not in self.optimizers:
                self.optimizers[name], self.schedules[name] = make_optimizer(name, self.parts[name], optim)
                refuse_left_out(name, self.parts[name], self.optimizers[name])

    def drop_missing(self) -> None:
        """Drop the optimizers of parts that no longer exist."""
        for name in [name for name in self.optimizers if name not in self.parts]:
            del self.optimizers[name], self.schedules[name]

    def step(self, losses: Losses) -> None:
        """Take a step down the gradients of a batch."""
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        losses.backward(None if self.scaler is None else self._scaled)
        if self.scaler is not None and losses.clips:
            for optimizer in self.optimizers.values():
                self.scaler.unscale_(optimizer)
            losses.clip()
        trained = {name: self.parts[name] for name in self.optimizers}
        self._check.before_step(trained, self.optimizers)
        for optimizer in self.optimizers.values():
            if self.scaler is None:
                optimizer.step()
            elif any(p.grad is not None for group in optimizer.param_groups for p in group["params"]):
                self.scaler.step(optimizer)  # fails for an optimizer without gradients
        if self.scaler is not None:
            self.scaler.update()
        self._check.after_step(trained, self.optimizers)

    def _scaled(self, loss: Tensor) -> Tensor:
        assert self.scaler is not None, "only a scaler scales"
        scaled: Tensor = self.scaler.scale(loss)
        return scaled

    def check_progress(self, epochs: int) -> None:
        """Raise a UserError if an epoch should have changed a part and did not."""
        self._check.refuse_stuck(epochs)


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


def diverged(summary: Mapping[str, float], trainer: CLIPTrainer) -> UserError:
    """Return the error for a loss that is not finite. `summary` are its terms by name."""
    bad = [name for name, value in summary.items() if not math.isfinite(value)]
    # The total is infinite if any term is: name the term.
    term = next((name for name in bad if name != "loss"), "loss")
    return UserError(
        f"The loss is not finite: {term} is {summary[term]} at epoch {trainer.epoch + 1}, batch "
        f"{trainer.batch_idx + 1} of {trainer.num_batches} (learning rate {trainer.get_current_lr():.2e}). Nothing was "
        "saved since the last complete epoch. Try a smaller OPTIM.LR, or "
        f"TRAINER.{trainer.Model.section}.PREC fp32 (now {trainer.clip.precision})."
    )
