"""Learning-rate schedules have Dassl's rates, continue where they stopped, and refuse what they cannot follow."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cocoamix.errors import UserError
from cocoamix.run.schedules import build_schedule
from tests.dassl.test_dassl import REFERENCE

CASES = pytest.mark.parametrize(
    "case", REFERENCE["learning_rates"], ids=lambda case: "-".join(map(str, case["keys"].values()))
)
# Of the reference, where a case does not set them.
DASSLS = {"LR": 0.002, "LR_SCHEDULER": "single_step", "MAX_EPOCH": 10, "WARMUP_TYPE": "linear", "WARMUP_MIN_LR": 1e-5}


def build(**keys: Any) -> tuple[torch.optim.Optimizer, Any]:
    usual = {"LR_SCHEDULER": "cosine", "STEPSIZE": (-1,), "GAMMA": 0.1, "MAX_EPOCH": 4, "WARMUP_EPOCH": -1}
    warmup = {"WARMUP_TYPE": "constant", "WARMUP_RECOUNT": True, "WARMUP_CONS_LR": 1e-5, "WARMUP_MIN_LR": 1e-6}
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=keys.get("LR", 0.2))
    return optimizer, build_schedule(optimizer, SimpleNamespace(**{**usual, **warmup, **keys}))


def run(optimizer: torch.optim.Optimizer, schedule: Any, epochs: int) -> list[float]:
    rates = []
    for _ in range(epochs):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def rates(epochs: int, **keys: Any) -> list[float]:
    return run(*build(**keys), epochs)


@CASES
def test_rates_are_dassls(case: dict[str, Any]) -> None:
    keys = {**DASSLS, **case["keys"]}
    assert rates(len(case["lr"]), **keys) == pytest.approx(case["lr"], rel=1e-7, abs=1e-12)


def only_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and only_plain(entry) for key, entry in value.items())
    if isinstance(value, list):
        return all(map(only_plain, value))
    return value is None or type(value) in (bool, int, float, str)


@CASES
def test_a_resumed_schedule_continues(case: dict[str, Any]) -> None:
    keys = {**DASSLS, **case["keys"]}
    # A warm-up also continues without the optimizer's state; torch's own schedulers need it.
    for with_optimizer in (True, False) if "WARMUP_EPOCH" in case["keys"] else (True,):
        for stop in range(len(case["lr"])):
            optimizer, schedule = build(**keys)
            run(optimizer, schedule, stop)
            state = schedule.state_dict()
            assert only_plain(state), state
            later_optimizer, later = build(**keys)
            if with_optimizer:
                later_optimizer.load_state_dict(optimizer.state_dict())
            later.load_state_dict(state)
            rest = run(later_optimizer, later, len(case["lr"]) - stop)
            assert rest == pytest.approx(case["lr"][stop:], rel=1e-7, abs=1e-12), f"resumed at epoch {stop}"


@pytest.mark.parametrize("warmup", [-1, 1])
def test_every_group_keeps_its_rate(warmup: int) -> None:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in (0.0002, 0.002)]
    optimizer = torch.optim.SGD(groups)
    keys = {"LR_SCHEDULER": "single_step", "STEPSIZE": (9,), "GAMMA": 0.1, "MAX_EPOCH": 4, "WARMUP_EPOCH": warmup}
    constant = {"WARMUP_TYPE": "constant", "WARMUP_RECOUNT": True, "WARMUP_CONS_LR": 1e-5, "WARMUP_MIN_LR": 1e-6}
    schedule = build_schedule(optimizer, SimpleNamespace(**keys, **constant))
    if warmup > 0:
        assert [group["lr"] for group in optimizer.param_groups] == [1e-5, 1e-5]
        optimizer.step()
        schedule.step()
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.0002, 0.002])


@pytest.mark.parametrize("length", [0, -1])
def test_schedule_without_warm_up_is_a_cosine(length: int) -> None:
    wanted = [0.1 * (1 + math.cos(math.pi * epoch / 4)) for epoch in range(4)]
    assert rates(4, WARMUP_EPOCH=length) == pytest.approx(wanted)


def test_single_step_without_a_length_spans_the_whole_training() -> None:
    assert rates(5, LR_SCHEDULER="single_step", STEPSIZE=(0,)) == pytest.approx([0.2] * 4 + [0.02])
    for steps in ((7, 1), [1], 1):
        assert rates(3, LR_SCHEDULER="single_step", STEPSIZE=steps) == pytest.approx([0.2, 0.02, 0.002])


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"LR_SCHEDULER": "cosin"}, "^OPTIM.LR_SCHEDULER is 'cosin'"),
        ({"WARMUP_EPOCH": 1, "WARMUP_TYPE": "slow"}, "^OPTIM.WARMUP_TYPE is 'slow'"),
        ({"LR_SCHEDULER": "multi_step", "STEPSIZE": 3}, "must be a list of epochs"),
        ({"LR_SCHEDULER": "multi_step", "STEPSIZE": (1, 2.5)}, "must be a list of epochs"),
        ({"LR_SCHEDULER": "single_step", "STEPSIZE": (2.5,)}, "must be a whole number of epochs"),
    ],
)
def test_invalid_schedules_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        build(**keys)
