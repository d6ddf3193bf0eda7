"""Convergence test for the few scalars that a weight stage trains.

An epoch may have a single step, and one step of SGD moves a weight by less than any useful tolerance long before it
converges. Movement is therefore measured over rounds: as few whole epochs as have at least ROUND_STEPS steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ROUND_STEPS = 50


class Movement:
    """Measures how far some values move in each round, starting from `start`."""

    def __init__(self, start: Sequence[float], round_steps: int = ROUND_STEPS) -> None:
        self.start, self.steps, self.round_steps = list(start), 0, round_steps

    def after_epoch(self, values: Sequence[float], steps: int) -> float | None:
        """Record the values after an epoch of `steps` steps.

        Returns:
            The largest movement of any value, if the epoch completes a round; None otherwise.
        """
        self.steps += steps
        if self.steps < self.round_steps:
            return None
        moved = max(abs(value - before) for value, before in zip(values, self.start, strict=True))
        self.start, self.steps = list(values), 0
        return moved

    def state(self) -> dict[str, Any]:
        """Return the state that a resume needs, as plain values."""
        return {"start": list(self.start), "steps": self.steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self.start, self.steps = list(state["start"]), int(state["steps"])


def epochs_within(steps: int, steps_per_epoch: int) -> int:
    """Return how many whole epochs fit into `steps` steps, at least one."""
    return max(1, steps // max(1, steps_per_epoch))
