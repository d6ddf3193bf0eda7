from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from dassl.config import get_cfg_default
from dassl.optim import build_lr_scheduler, build_optimizer
from torch import nn
from yacs.config import CfgNode

from .engine import REFERENCE, REFUSALS, only_ours


def settings(**keys: Any) -> CfgNode:
    optim = get_cfg_default().OPTIM
    for key, value in {"NAME": "sgd", "LR": 0.002, "MAX_EPOCH": 10, **keys}.items():
        optim[key] = tuple(value) if isinstance(value, list) else value
    return optim


def build(optim: CfgNode) -> tuple[torch.optim.Optimizer, Any]:
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    optimizer = build_optimizer([parameter], optim)
    return optimizer, build_lr_scheduler(optimizer, optim)


def run(optimizer: torch.optim.Optimizer, scheduler: Any, epochs: int) -> list[float]:
    rates = []
    for _ in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


WARMUP = {"LR_SCHEDULER": "cosine", "WARMUP_EPOCH": 1, "WARMUP_TYPE": "constant"}


@pytest.mark.parametrize(
    "case", REFERENCE["learning_rates"], ids=lambda case: "-".join(map(str, case["keys"].values()))
)
def test_learning_rates_match_dassl(case: dict[str, Any]) -> None:
    rates = run(*build(settings(**case["keys"])), epochs=len(case["lr"]))
    assert rates == pytest.approx(case["lr"], rel=1e-7, abs=1e-12)


def test_learning_rates_of_the_default_config() -> None:
    """Constant warm-up for one epoch, then a cosine that starts counting at the second epoch."""
    expected = [1e-5] + [0.001 * (1 + math.cos(math.pi * epoch / 10)) for epoch in range(9)]
    assert run(*build(settings(**WARMUP)), epochs=10) == pytest.approx(expected)
    assert expected[-1] == pytest.approx(0.000191, rel=1e-2)


@pytest.mark.parametrize("keys", [{}, WARMUP])
def test_every_group_keeps_its_rate(keys: dict[str, Any]) -> None:
    optim = settings(**keys)
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": rate} for rate in (0.0002, 0.002)]
    optimizer = torch.optim.SGD(groups)
    scheduler = build_lr_scheduler(optimizer, optim)
    if keys:
        assert [group["lr"] for group in optimizer.param_groups] == [1e-5, 1e-5]
        optimizer.step()
        scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.0002, 0.002])


class Learner(nn.Module):
    """A module with its own parameter in addition to those of its children."""

    def __init__(self) -> None:
        super().__init__()
        self.context, self.body, self.head = nn.Parameter(torch.zeros(3)), nn.Linear(2, 2), nn.Linear(2, 1)


@only_ours
def test_staged_rates_cover_all_parameters() -> None:
    """Dassl's own groups omit parameters that are not in a child."""
    model = Learner()
    base, new = build_optimizer(model, settings(STAGED_LR=True, NEW_LAYERS=["head"])).param_groups
    assert (base["lr"], new["lr"]) == (pytest.approx(0.0002), 0.002)
    assert [p.shape for p in base["params"]] == [p.shape for p in (model.context, *model.body.parameters())]
    assert all(one is other for one, other in zip(new["params"], model.head.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "kind", "values"),
    [
        ("sgd", torch.optim.SGD, {"momentum": 0.8, "dampening": 0, "nesterov": True}),
        ("adam", torch.optim.Adam, {"betas": (0.7, 0.9), "amsgrad": False}),
        ("amsgrad", torch.optim.Adam, {"betas": (0.7, 0.9), "amsgrad": True}),
        ("adamw", torch.optim.AdamW, {"betas": (0.7, 0.9)}),
        ("rmsprop", torch.optim.RMSprop, {"momentum": 0.8, "alpha": 0.6}),
        ("radam", torch.optim.Optimizer, {"betas": (0.7, 0.9)}),
    ],
)
def test_optimizers_have_the_configured_values(name: str, kind: type, values: dict[str, Any]) -> None:
    optim = settings(
        NAME=name,
        WEIGHT_DECAY=0.3,
        MOMENTUM=0.8,
        SGD_NESTEROV=True,
        RMSPROP_ALPHA=0.6,
        ADAM_BETA1=0.7,
        ADAM_BETA2=0.9,
    )
    model = nn.Linear(2, 1)
    optimizer = build_optimizer(model, optim)
    assert isinstance(optimizer, kind)
    (group,) = optimizer.param_groups
    assert {key: group[key] for key in values} == values
    assert (group["lr"], group["weight_decay"]) == (0.002, 0.3)
    before = model.weight.detach().clone()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight, before)


@pytest.mark.parametrize("keys", [{"NAME": "sdg"}, {"LR_SCHEDULER": "cosin"}, {**WARMUP, "WARMUP_TYPE": "slow"}])
def test_unknown_names_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(REFUSALS):
        build(settings(**keys))


@pytest.mark.parametrize("keys", [{"LR_SCHEDULER": "single_step", "STEPSIZE": (2.5,)}])
def test_step_sizes_of_the_wrong_type_are_refused(keys: dict[str, Any]) -> None:
    with pytest.raises((*REFUSALS, TypeError)):
        build(settings(**keys))


def test_warmup_state_shows_its_position() -> None:
    """Trainers save these names as plain state, for both engines."""
    optimizer, scheduler = build(settings(**{**WARMUP, "WARMUP_EPOCH": 2}))
    seen = []
    for _ in range(4):
        seen.append((scheduler.last_epoch, scheduler.successor.last_epoch))
        optimizer.step()
        scheduler.step()
    assert seen == [(0, 0), (1, 0), (2, 0), (2, 1)]
    assert list(scheduler.get_last_lr()) == [optimizer.param_groups[0]["lr"]]


def only_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and only_plain(entry) for key, entry in value.items())
    if isinstance(value, list):
        return all(map(only_plain, value))
    return value is None or type(value) in (bool, int, float, str)


@only_ours
@pytest.mark.parametrize(
    "case", REFERENCE["learning_rates"], ids=lambda case: "-".join(map(str, case["keys"].values()))
)
def test_a_resumed_schedule_continues(case: dict[str, Any]) -> None:
    optim = settings(**case["keys"])
    # A warm-up also continues without the optimizer's state; torch's own schedulers need it.
    for with_optimizer in (True, False) if "WARMUP_EPOCH" in case["keys"] else (True,):
        for stop in range(len(case["lr"])):
            optimizer, scheduler = build(optim)
            run(optimizer, scheduler, stop)
            state = scheduler.state_dict()
            assert only_plain(state), state
            later_optimizer, later = build(optim)
            if with_optimizer:
                later_optimizer.load_state_dict(optimizer.state_dict())
            later.load_state_dict(state)
            rates = run(later_optimizer, later, len(case["lr"]) - stop)
            assert rates == pytest.approx(case["lr"][stop:], rel=1e-7, abs=1e-12), f"resumed at epoch {stop}"


@only_ours
def test_a_longer_run_follows_the_new_config() -> None:
    """A finished run that continues with more epochs must not climb back up the old cosine."""
    optimizer, scheduler = build(settings(**WARMUP))
    run(optimizer, scheduler, 10)
    later_optimizer, later = build(settings(**{**WARMUP, "MAX_EPOCH": 20}))
    later.load_state_dict(scheduler.state_dict())
    rates = run(later_optimizer, later, 10)
    assert rates == sorted(rates, reverse=True)
