"""Folds: when there are any, and what a resume needs of them."""

from __future__ import annotations

import torch

from cocoamix.coa.folds import Folds

LABELS = [0, 0, 0, 0, 1, 1, 1, 1]


def test_saved_prompts_are_copies_and_survive_a_resume() -> None:
    folds = Folds(LABELS, seed=1, wanted=True)
    prompt = {"ctx": torch.zeros(2)}
    assert [folds.add(prompt) for _ in range(4)] == [False, False, False, True]
    prompt["ctx"] += 1
    folds.seconds, folds.fitted = 2.5, {"pi_in": 0.7}
    resumed = Folds(LABELS, seed=1, wanted=True)
    resumed.restore(folds.state())
    assert [float(state["ctx"].sum()) for state in resumed.states] == [0.0] * 4
    assert (resumed.seconds, resumed.fitted) == (2.5, {"pi_in": 0.7})


def test_folds_are_made_only_where_they_are_wanted_and_possible() -> None:
    assert not Folds(LABELS, seed=1)
    assert Folds(LABELS, seed=1).fitted is None
    single = Folds([0, 0, 1], seed=1, wanted=True)
    assert not single
    assert "single training image" in str(single.fitted)
