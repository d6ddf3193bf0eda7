"""Learning-rate schedules on any engine: where a warm-up starts, and what is refused. The rates are compared with
Dassl's in tests/dassl_interface."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cocoamix.errors import UserError
from cocoamix.run.schedules import build_schedule


def build(**keys: Any) -> tuple[torch.optim.Optimizer, Any]:
    usual = {"LR_SCHEDULER": "cosine", "STEPSIZE": (-1,), "GAMMA": 0.1, "MAX_EPOCH": 4, "WARMUP_EPOCH": -1}
    warmup = {"WARMUP_TYPE": "constant", "WARMUP_RECOUNT": True, "WARMUP_CONS_LR": 1e-5, "WARMUP_MIN_LR": 1e-6}
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.2)
    return optimizer, build_schedule(optimizer, SimpleNamespace(**{**usual, **warmup, **keys}))


def rates(epochs: int, **keys: Any) -> list[float]:
    optimizer, schedule = build(**keys)
    found = []
    for _ in range(epochs):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


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
