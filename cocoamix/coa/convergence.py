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


class SecondStage:
    """Follows pi through the second stage, and records how it ended.

    Attributes:
        ended: Length and reason, once the stage has ended.

    Args:
        pi: pi^in and pi^out at its start.
        epochs: Its length; 0 to run until convergence.
        tolerance: The movement of pi in a round below which it has converged.
    """

    def __init__(self, pi: Sequence[float], epochs: int, tolerance: float) -> None:
        self.epochs, self.tolerance = epochs, tolerance
        self.ended: dict[str, Any] | None = None
        self._movement = Movement(pi)

    def after_epoch(self, epoch: int, last: bool, pi: Sequence[float], steps: int) -> bool:
        """Record pi after an epoch, counted from 0, of `steps` steps; return whether the stage ends with it."""
        moved = self._movement.after_epoch(pi, steps)
        converged = not self.epochs and moved is not None and moved < self.tolerance
        if last or converged:
            reason = "length" if self.epochs else "converged" if converged else "bound"
            facts = {"epochs": epoch + 1, "steps": (epoch + 1) * steps, "ended": reason, "moved": moved}
            self.ended = {**facts, "pi_in": pi[0], "pi_out": pi[1]}
        return last or converged

    def describe(self) -> str:
        """Return how it ended, as a sentence."""
        if self.ended is None:
            return ""
        count, moved = self.ended["epochs"], self.ended["moved"]
        words = f"{count} epoch{'s' * (count != 1)}"
        sentences = {
            "length": f"Trained the weights for {words} (WEIGHT_EPOCHS)",
            "converged": f"The weights converged after {words}",
            "bound": f"The weights reached {self.ended['steps']} steps (WEIGHT_MAX_STEPS) without converging",
        }
        return sentences[self.ended["ended"]] + (
            "" if moved is None else f": pi moved by {moved:.6f} in the last round"
        )

    def state(self) -> dict[str, Any]:
        """Return the state that a resume needs."""
        return {"movement": self._movement.state(), "ended": self.ended}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._movement.restore(state["movement"])
        self.ended = state["ended"]


def epochs_within(steps: int, steps_per_epoch: int) -> int:
    """Return how many whole epochs fit into `steps` steps, at least one."""
    return max(1, steps // max(1, steps_per_epoch))
