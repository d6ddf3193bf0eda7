"""Where a run is among its phases."""

from __future__ import annotations

from typing import Any

import pytest

from cocoamix.model import Phase
from cocoamix.run.course import Course


def make() -> Course:
    return Course([Phase("prompt", 4, {}), Phase("weights", 3, {})])


@pytest.mark.parametrize("done", range(8))
def test_a_state_continues_where_it_was(done: int) -> None:
    course = make()
    course.advance_to(done)
    other = make()
    other.restore(course.state(), done)
    assert (other.phase, other.start, other.total) == (course.phase, course.start, 7)
    assert course.phase.name == ("prompt" if done < 4 else "weights")


@pytest.mark.parametrize(
    "state",
    [[5, 0, False], [-1, 0, False], [0, 3, False], [0, 0, True], [0, -50, False], [0, 0, 0], [1, 7, False], "x", None],
)
def test_a_state_that_does_not_fit_is_refused(state: Any) -> None:
    """The run is before its third epoch, so in the first phase from epoch 0."""
    with pytest.raises((TypeError, ValueError)):
        make().restore(state, 2)


def test_a_phase_may_end_early() -> None:
    course = make()
    course.advance(4)
    course.finish(5)
    assert course.total == 5
    other = make()
    other.restore(course.state(), 5)
    assert other.total == 5
