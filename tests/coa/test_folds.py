"""Folds: every image is held out once, and the saved prompts survive a resume."""

from __future__ import annotations

import torch

from cocoamix.coa.folds import Folds

LABELS = [0, 0, 0, 0, 1, 1, 1, 1]


def test_each_image_is_held_out_by_exactly_one_fold() -> None:
    folds, items = Folds(LABELS, seed=1, wanted=True), list("abcdefgh")
    assert folds.count == 4
    left = [set(items) - set(folds.training_items(items, fold)) for fold in range(4)]
    assert sorted(name for names in left for name in names) == items
    for names in left:  # one of each class
        assert len(names & set("abcd")) == len(names & set("efgh")) == 1


def test_no_folds_unless_requested() -> None:
    assert not Folds(LABELS, seed=1)
    assert Folds(LABELS, seed=1).fitted is None


def test_a_single_image_cannot_be_held_out() -> None:
    folds = Folds([0, 0, 1], seed=1, wanted=True)
    assert not folds
    assert folds.fitted is not None
    assert "single training image" in folds.fitted["why"]


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
