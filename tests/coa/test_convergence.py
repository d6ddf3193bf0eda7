"""When trained values have converged: rounds of enough steps, and a state that can be restored."""

from __future__ import annotations

import pytest

from cocoamix.coa.convergence import Movement, SecondStage, epochs_within


def test_one_step_epochs_are_grouped_into_rounds() -> None:
    """A slow drift of 0.0009 a step has not converged, though each epoch moves by less than 0.001."""
    values = [0.5 + 0.0009 * step for step in range(1, 121)]
    movement = Movement([0.5, 0.5])
    found = [movement.after_epoch([0.5, value], steps=1) for value in values]
    assert [number for number, moved in enumerate(found, 1) if moved is not None] == [50, 100]
    assert abs((found[49] or 0) - 0.045) < 1e-9
    assert abs((found[99] or 0) - 0.045) < 1e-9


def test_largest_absolute_change_counts() -> None:
    assert Movement([0.5, 0.5], round_steps=1).after_epoch([0.51, 0.25], steps=1) == 0.25


def test_epochs_for_a_maximum_number_of_steps() -> None:
    assert [epochs_within(100, steps) for steps in (1, 7, 62, 101, 0)] == [100, 14, 1, 1, 100]


@pytest.mark.parametrize("moved", [0.005, 0.02])
@pytest.mark.parametrize("side", [0, 1])
def test_a_stage_ends_when_both_weights_converge(moved: float, side: int) -> None:
    """Within the tolerance of 0.01, at its length, or at its bound; a restored one ends at the same epoch."""
    pi = [0.5, 0.5]
    pi[side] += moved
    stage, fixed, killed, resumed = (SecondStage([0.5, 0.5], epochs, 0.01) for epochs in (0, 2, 0, 0))
    assert stage.after_epoch(0, False, pi, 100) == (moved < 0.01)
    assert (stage.ended or {}).get("moved") == (pytest.approx(moved) if moved < 0.01 else None)
    assert not fixed.after_epoch(0, False, pi, 100)
    assert fixed.describe() == ""
    for one, reason, epochs in ((stage, "bound", 4), (fixed, "length", 2)):
        assert one.after_epoch(epochs - 1, True, [0.9, 0.1], 100)
        last = {"epochs": epochs, "steps": 100 * epochs, "ended": reason, "pi_in": 0.9, "pi_out": 0.1}
        assert {key: one.ended[key] for key in last} == last  # type: ignore[index]
        assert f"{100 * epochs} steps" in one.describe() or f"{epochs} epochs" in one.describe()
    assert not killed.after_epoch(0, False, pi, 30)
    resumed.restore(killed.state())
    assert resumed.after_epoch(1, False, [0.505, 0.5], 30)
    assert resumed.ended == {**resumed.ended, "ended": "converged", "epochs": 2}  # type: ignore[dict-item]
    assert "1 epoch" not in resumed.describe()
