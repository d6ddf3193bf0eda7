"""Checks that the first training steps change the parameters: a run that learns nothing must fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cocoamix.errors import UserError


class ProgressCheck:
    """Watches each model from its first step until a step changes it or the epoch ends."""

    def __init__(self) -> None:
        self._moved: set[str] = set()
        self._stuck: dict[str, float] = {}  # learning rates of steps that should have changed a model
        self._before: dict[str, list[Tensor]] = {}

    def before_step(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Any]) -> None:
        """Copy the parameters of models that have gradients and have not changed yet."""
        self._before = {
            name: [parameter.detach().clone() for parameter in model.parameters()]
            for name, model in models.items()
            if name not in self._moved and optimizers[name] is not None and _has_gradients(model)
        }

    def after_step(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Any]) -> None:
        """Record which models the step changed, and which it should have changed."""
        for name, before in self._before.items():
            now = models[name].parameters()
            if not all(torch.equal(old, new) for old, new in zip(before, now, strict=True)):
                self._moved.add(name)
                self._stuck.pop(name, None)
            elif rate := _moving_rate(models[name], optimizers[name]):
                self._stuck[name] = rate
        self._before = {}

    def refuse_stuck(self, epochs: int) -> None:
        """Raise UserError after an epoch that should have changed a model and did not."""
        for name, rate in self._stuck.items():
            raise UserError(
                f"Nothing was learned: {name} did not change in epoch {epochs}, although it has gradients "
                f"and a learning rate of {rate:g}. Nothing was saved. Check OPTIM.NAME and the installed Dassl."
            )


def _has_gradients(model: nn.Module) -> bool:
    return any(parameter.grad is not None for parameter in model.parameters())


def _moving_rate(model: nn.Module, optimizer: Any) -> float:
    """Return a learning rate at which plain gradient descent would have changed the model, else 0.

    It is 0 if the rate is 0, if gradients are 0 or too small to change a parameter, and if a loss scaler skips the step
    because gradients are not finite.
    """
    rates = {id(parameter): group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    trained = [(parameter, parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
    if not all(torch.isfinite(gradient).all() for _, gradient in trained):
        return 0.0
    for parameter, gradient in trained:
        rate = float(rates.get(id(parameter), 0.0))
        # Adaptive optimizers scale large gradients down, to about 1 in their first step.
        stepped = parameter.detach() - rate * gradient.clamp(-0.5, 0.5)
        if not torch.equal(stepped, parameter):
            return rate
    return 0.0
