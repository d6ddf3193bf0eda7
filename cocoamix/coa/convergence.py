"""When a few numbers that are trained have come to rest.

An epoch may have one step, and one step of SGD moves a weight by less than any useful tolerance long before it has
arrived. So movement is measured over rounds: the fewest whole epochs that have ROUND_STEPS steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ROUND_STEPS = 50


class Movement:
    """Follows some numbers from the state that they start in. Its own state is plain, for a resume."""

    def __init__(self, start: Sequence[float], round_steps: int = ROUND_STEPS) -> None:
        self.start, self.steps, self.round_steps = list(start), 0, round_steps

    def after_epoch(self, values: Sequence[float], steps: int) -> float | None:
        """Take in the values after an epoch of so many steps.

        Return how far they went in the round that the epoch completes, the farthest of them; None within a round.
        """
        self.steps += steps
        if self.steps < self.round_steps:
            return None
        moved = max(abs(value - before) for value, before in zip(values, self.start, strict=True))
        self.start, self.steps = list(values), 0
        return moved

    def state(self) -> dict[str, Any]:
        """Return where the round stands."""
        return {"start": list(self.start), "steps": self.steps}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.start, self.steps = list(state["start"]), int(state["steps"])


def epochs_within(steps: int, steps_per_epoch: int) -> int:
    """Return how many epochs have at most so many steps, at least one."""
    return max(1, steps // max(1, steps_per_epoch))
