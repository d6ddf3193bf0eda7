"""The epochs of a training, counted by hand, and the end of the second stage."""

from __future__ import annotations

import pytest

from cocoamix.coa.stages import SecondStage, Stages

FOLDED = Stages(learns_weights=True, two=True, first=3, folds=2, weights=0, max_weights=4)


def phases(stages: Stages, epochs: int) -> list[str]:
    return [stages.phase(epoch) for epoch in range(epochs)]


def test_one_stage_trains_both_in_every_epoch() -> None:
    stages = Stages(learns_weights=True, two=False, first=3, max_weights=9)
    assert phases(stages, 3) == ["both"] * 3
    assert (stages.total, stages.views) == (3, 3)
    assert stages.epochs_of(weights=True, done=2) == stages.epochs_of(weights=False, done=2) == 2


def test_only_the_prompt_is_trained_without_weights() -> None:
    assert phases(Stages(learns_weights=False, two=False, first=3), 3) == ["prompt"] * 3


def test_folds_come_between_the_stages() -> None:
    assert phases(FOLDED, 13) == ["prompt"] * 3 + ["fold"] * 6 + ["weights"] * 4
    assert FOLDED.total == 13
    assert [FOLDED.fold(epoch) for epoch in range(3, 9)] == [0, 0, 0, 1, 1, 1]
    assert [epoch for epoch in range(3, 9) if FOLDED.ends_fold(epoch)] == [5, 8]


def test_views_repeat_unless_the_second_stage_has_a_fixed_length() -> None:
    assert [FOLDED.view(epoch) for epoch in range(13)] == [0, 1, 2] * 4 + [0]
    known = Stages(learns_weights=True, two=True, first=3, weights=2, max_weights=2)
    assert [known.view(epoch) for epoch in range(5)] == [0, 1, 2, 3, 4]
    assert (FOLDED.views, known.views) == (3, 5)


def test_number_of_epochs_of_each_model() -> None:
    assert [FOLDED.epochs_of(weights=False, done=done) for done in (2, 3, 9, 11)] == [2, 3, 3, 3]
    assert [FOLDED.epochs_of(weights=True, done=done) for done in (2, 3, 9, 11)] == [0, 0, 0, 2]


def second(weights: int = 0, tolerance: float = 0.01) -> SecondStage:
    stages = Stages(learns_weights=True, two=True, first=1, weights=weights, max_weights=5)
    return SecondStage(stages, [0.5, 0.5], tolerance, max_steps=500)


@pytest.mark.parametrize("pi", [[0.505, 0.5], [0.5, 0.495]])
def test_second_stage_ends_when_both_weights_converge(pi: list[float]) -> None:
    stage = second()
    assert stage.after_epoch(1, last=False, pi=pi, steps=100)
    assert stage.ended == {
        "epochs": 1,
        "steps": 100,
        "ended": "converged",
        "moved": pytest.approx(0.005),
        "pi_in": pi[0],
        "pi_out": pi[1],
    }


@pytest.mark.parametrize("pi", [[0.52, 0.5], [0.5, 0.48]])
def test_second_stage_continues_while_a_weight_moves(pi: list[float]) -> None:
    stage = second()
    assert not stage.after_epoch(1, last=False, pi=pi, steps=100)
    assert stage.ended is None
    assert stage.after_epoch(2, last=True, pi=[0.6, 0.4], steps=100)
    assert stage.ended is not None
    assert stage.ended["ended"] == "bound"


def test_fixed_length_is_kept_regardless_of_convergence() -> None:
    stage = second(weights=2)
    assert not stage.after_epoch(1, last=False, pi=[0.5, 0.5], steps=100)
    assert stage.after_epoch(2, last=True, pi=[0.9, 0.1], steps=100)
    assert stage.ended is not None
    assert (stage.ended["ended"], stage.ended["epochs"], stage.ended["steps"]) == ("length", 2, 200)


def test_a_restored_stage_ends_at_the_same_epoch() -> None:
    """In the middle of a round of 50 steps."""
    whole, killed = second(), second()
    for stage in (whole, killed):
        assert not stage.after_epoch(1, last=False, pi=[0.52, 0.5], steps=30)
    resumed = second()
    resumed.follow([0.9, 0.9])
    resumed.restore(killed.state())
    for stage in (whole, resumed):
        assert stage.after_epoch(2, last=False, pi=[0.505, 0.5], steps=30)
    assert resumed.ended == whole.ended
