"""When trained values have converged: rounds of enough steps, and a state that can be restored."""

from __future__ import annotations

from cocoamix.coa.convergence import Movement, epochs_within


def test_one_step_epochs_are_grouped_into_rounds() -> None:
    """A slow drift of 0.0009 a step has not converged, though each epoch moves by less than 0.001."""
    values = [0.5 + 0.0009 * step for step in range(1, 121)]
    movement = Movement([0.5, 0.5])
    found = [movement.after_epoch([0.5, value], steps=1) for value in values]
    assert [number for number, moved in enumerate(found, 1) if moved is not None] == [50, 100]
    assert abs((found[49] or 0) - 0.045) < 1e-9
    assert abs((found[99] or 0) - 0.045) < 1e-9


def test_a_long_epoch_is_a_round() -> None:
    movement = Movement([0.2])
    assert movement.after_epoch([0.3], steps=62) == 0.3 - 0.2
    assert movement.after_epoch([0.3], steps=62) == 0


def test_largest_absolute_change_counts() -> None:
    assert Movement([0.5, 0.5], round_steps=1).after_epoch([0.51, 0.25], steps=1) == 0.25


def test_restored_state_continues_identically() -> None:
    whole, part = Movement([0.0]), Movement([0.0])
    for step in range(30):
        part.after_epoch([step / 100], steps=1)
        whole.after_epoch([step / 100], steps=1)
    resumed = Movement([0.9])
    resumed.restore(part.state())
    for step in range(30, 60):
        assert resumed.after_epoch([step / 100], steps=1) == whole.after_epoch([step / 100], steps=1)


def test_epochs_for_a_maximum_number_of_steps() -> None:
    assert [epochs_within(100, steps) for steps in (1, 7, 62, 101, 0)] == [100, 14, 1, 1, 100]
