"""Optimizers that cover every parameter at the configured rate, and steps that must change something."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from dassl.config import get_cfg_default
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.run.movement import ProgressCheck
from cocoamix.run.optimisation import make_optimizer
from cocoamix.run.parameter_groups import refuse_left_out


class Learner(nn.Module):
    """Like a prompt learner: its own parameter, and a child."""

    def __init__(self) -> None:
        super().__init__()
        self.ctx = nn.Parameter(torch.ones(4, 3))
        self.meta_net = nn.Linear(3, 3)


def settings(**keys: Any) -> CfgNode:
    optim = get_cfg_default().OPTIM
    for key, value in {"NAME": "sgd", "LR": 0.002, "MAX_EPOCH": 4, **keys}.items():
        optim[key] = value
    return optim


@pytest.mark.parametrize(
    ("keys", "rates"),
    [
        ({"STAGED_LR": False}, {"ctx": 0.002, "meta_net": 0.002}),
        ({"NEW_LAYERS": ("linear_probe", "film"), "BASE_LR_MULT": 1.0}, {"ctx": 0.002, "meta_net": 0.002}),  # DePT's
        ({"NEW_LAYERS": ("meta_net",)}, {"ctx": 0.0002, "meta_net": 0.002}),
        ({"NEW_LAYERS": ("prompt_learner",)}, {"ctx": 0.002, "meta_net": 0.002}),
        ({}, {"ctx": 0.0002, "meta_net": 0.0002}),
    ],
)
@pytest.mark.parametrize("name", ["sgd", "adam", "amsgrad", "rmsprop", "radam", "adamw"])
def test_staged_rates_cover_every_parameter(keys: dict[str, Any], rates: dict[str, float], name: str) -> None:
    model = Learner()
    optimizer, schedule = make_optimizer("prompt_learner", model, settings(**{"STAGED_LR": True, **keys, "NAME": name}))
    found = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    for key, parameter in model.named_parameters():
        assert found.pop(id(parameter)) == pytest.approx(rates[key.partition(".")[0]])
    assert not found
    assert all(group["params"] for group in optimizer.param_groups)
    optimizer.step()
    schedule.step()


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("sgd", torch.optim.SGD, {"momentum": 0.8, "dampening": 0, "nesterov": True}),
        ("adam", torch.optim.Adam, {"betas": (0.7, 0.9), "amsgrad": False}),
        ("amsgrad", torch.optim.Adam, {"betas": (0.7, 0.9), "amsgrad": True}),
        ("adamw", torch.optim.AdamW, {"betas": (0.7, 0.9)}),
        ("rmsprop", torch.optim.RMSprop, {"momentum": 0.8, "alpha": 0.6}),
        ("radam", torch.optim.RAdam, {"betas": (0.7, 0.9)}),
    ],
)
def test_optimizers_have_the_configured_values(name: str, kind: type, values: dict[str, Any]) -> None:
    keys = {"WEIGHT_DECAY": 0.3, "MOMENTUM": 0.8, "SGD_NESTEROV": True, "RMSPROP_ALPHA": 0.6}
    optim = settings(NAME=name, **keys, ADAM_BETA1=0.7, ADAM_BETA2=0.9)
    optimizer, _ = make_optimizer("prompt_learner", Learner(), optim)
    assert isinstance(optimizer, kind)
    (group,) = optimizer.param_groups
    assert {key: group[key] for key in values} == values
    assert (group["lr"], group["weight_decay"]) == (0.002, 0.3)


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(UserError, match=r"^OPTIM\.NAME is 'sdg'"):
        make_optimizer("prompt_learner", Learner(), settings(NAME="sdg"))


def test_a_parameter_in_no_group_is_refused() -> None:
    model = Learner()
    optimizer = torch.optim.SGD(model.meta_net.parameters(), lr=0.1)
    for engine in (optimizer, None):
        with pytest.raises(UserError, match=r"^prompt_learner\.ctx would not be trained"):
            refuse_left_out("prompt_learner", model, engine)
    model.ctx.requires_grad_(False)
    refuse_left_out("prompt_learner", model, optimizer)
    model.requires_grad_(False)
    refuse_left_out("prompt_learner", model, None)


class Idle(torch.optim.SGD):
    """An optimizer whose steps do nothing."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        pass


def take_steps(
    model: Learner, optimizer: torch.optim.Optimizer, gradient: Tensor | None, moves: ProgressCheck | None = None
) -> ProgressCheck:
    """Take two steps of an epoch with a gradient of only the context."""
    moves = moves or ProgressCheck()
    for _ in range(2):
        optimizer.zero_grad()
        model.ctx.grad = None if gradient is None else gradient.clone()
        moves.before_step({"prompt_learner": model}, {"prompt_learner": optimizer})
        optimizer.step()
        moves.after_step({"prompt_learner": model}, {"prompt_learner": optimizer})
    return moves


GRADIENT = torch.full((4, 3), 0.01)


def test_an_epoch_that_changes_nothing_is_refused() -> None:
    model = Learner()
    moves = take_steps(model, Idle(model.parameters(), lr=0.002), GRADIENT)
    with pytest.raises(UserError, match=r"prompt_learner did not change in epoch 1.* learning rate of 0\.002"):
        moves.refuse_stuck(1)


@pytest.mark.parametrize("name", ["sgd", "adam", "amsgrad", "rmsprop", "radam", "adamw"])
@pytest.mark.parametrize("rate", [0.002, 1e-5])  # 1e-5 is the usual warm-up
@pytest.mark.parametrize("size", [1e-6, 0.01, 1e4])
def test_steps_that_change_parameters_pass(name: str, rate: float, size: float) -> None:
    model = Learner()
    with torch.no_grad():
        model.ctx.mul_(0.02)
    optimizer, _ = make_optimizer("prompt_learner", model, settings(NAME=name, LR=rate, WEIGHT_DECAY=0.0))
    take_steps(model, optimizer, GRADIENT / 0.01 * size).refuse_stuck(1)


@pytest.mark.parametrize(
    ("rate", "gradient"),
    [
        (0.0, GRADIENT),  # a deliberate rate of 0, or one in a linear warm-up
        (0.002, torch.zeros(4, 3)),  # a loss of 0
        (0.002, torch.full((4, 3), torch.inf)),  # a loss scaler skips the step
        (1e-5, torch.full((4, 3), 1e-12)),  # too small a change for the parameter's precision
        (0.002, None),  # a model that another stage trains
    ],
)
def test_an_epoch_that_need_not_change_parameters_passes(rate: float, gradient: Tensor | None) -> None:
    model = Learner()
    take_steps(model, Idle(model.parameters(), lr=rate), gradient).refuse_stuck(1)


def test_a_later_effective_step_passes() -> None:
    model = Learner()
    optimizer = Idle(model.parameters(), lr=0.002)
    moves = take_steps(model, optimizer, GRADIENT)
    start = copy.deepcopy(model.state_dict())
    take_steps(model, torch.optim.SGD(model.parameters(), lr=0.002), GRADIENT, moves).refuse_stuck(1)
    assert not torch.equal(start["ctx"], model.ctx)
