"""The one-stage and two-stage schedules of CoCoA-Mix (Appendix D.1), and when the second stage ends.

In two stages, a run trains the prompt, then one prompt per fold if the weights are fitted to held-out images, then the
weights. All of these are epochs of one loop, so an interrupted run resumes in any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .convergence import Movement


@dataclass(frozen=True)
class Stages:
    """The schedule of a training run.

    Attributes:
        learns_weights: Whether the run trains CoA-weights.
        two: Whether it trains them in a second stage, after the prompt.
        first: Epochs of the prompt.
        folds: Number of prompts tuned between the stages, for `first` epochs each.
        weights: Epochs of the second stage; 0 to run until convergence.
        max_weights: Largest number of epochs of the second stage.
    """

    learns_weights: bool
    two: bool
    first: int
    folds: int = 0
    weights: int = 0
    max_weights: int = 0

    @property
    def before_weights(self) -> int:
        """Number of epochs before the second stage."""
        return self.first * (1 + self.folds)

    @property
    def total(self) -> int:
        """Largest number of epochs of the run."""
        return self.before_weights + self.max_weights if self.two else self.first

    @property
    def views(self) -> int:
        """Number of different augmentations of an image over all epochs."""
        return self.first + (self.weights if self.two else 0)

    def phase(self, epoch: int) -> str:
        """Return what an epoch trains: `prompt`, `fold` (the prompt of a fold), `weights` or `both`."""
        if not self.learns_weights:
            return "prompt"
        if not self.two:
            return "both"
        if epoch < self.first:
            return "prompt"
        return "fold" if epoch < self.before_weights else "weights"

    def fold(self, epoch: int) -> int:
        """Return the fold of an epoch."""
        return epoch // self.first - 1

    def ends_fold(self, epoch: int) -> bool:
        """Return whether an epoch is the last of its fold."""
        return (epoch + 1) % self.first == 0

    def view(self, epoch: int) -> int:
        """Return the index of the augmentation that an epoch uses.

        Folds, and a second stage of unknown length, reuse those of the first stage, so no image is encoded again.
        """
        if not self.two or epoch < self.first:
            return epoch
        known = epoch >= self.before_weights and self.weights > 0
        return self.first + epoch - self.before_weights if known else epoch % self.first

    def epochs_of(self, weights: bool, done: int) -> int:
        """Return how many of `done` epochs trained the weights, or the prompt if `weights` is false."""
        if not self.two:
            return done
        return max(0, done - self.before_weights) if weights else min(done, self.first)


class SecondStage:
    """Tracks pi through the second stage and decides when it ends."""

    def __init__(self, stages: Stages, pi: Sequence[float], tolerance: float, max_steps: int) -> None:
        self.stages, self.tolerance, self.max_steps = stages, tolerance, max_steps
        self.ended: dict[str, Any] | None = None  # length and reason, once the stage has ended
        self.follow(pi)

    def follow(self, pi: Sequence[float]) -> None:
        """Measure the movement of pi from here on."""
        self._movement = Movement(pi)

    def after_epoch(self, epoch: int, last: bool, pi: Sequence[float], steps: int) -> bool:
        """Record (pi^in, pi^out) after an epoch; return whether the stage ends with it.

        Args:
            epoch: Number of the epoch in the run.
            last: Whether it is the last epoch of the schedule.
            pi: pi^in and pi^out.
            steps: Number of steps in the epoch.
        """
        moved = self._movement.after_epoch(pi, steps)
        epochs = epoch + 1 - self.stages.before_weights
        words = f"{epochs} epoch{'s' * (epochs != 1)}"
        how_far = "" if moved is None else f": pi moved by {moved:.6f} in the last round"
        reason = ""
        if self.stages.weights:
            if last:
                reason = "length"
                print(f"Trained the weights for {words} (WEIGHT_EPOCHS){how_far}")
        elif moved is not None and moved < self.tolerance:
            reason = "converged"
            print(f"The weights converged after {words}{how_far}")
        elif last:
            reason = "bound"
            print(f"The weights reached WEIGHT_MAX_STEPS ({self.max_steps}) without converging{how_far}")
        if reason:
            facts = {"epochs": epochs, "steps": epochs * steps, "ended": reason, "moved": moved}
            self.ended = {**facts, "pi_in": pi[0], "pi_out": pi[1]}
        return bool(reason)

    def state(self) -> dict[str, Any]:
        """Return the state that a resume needs."""
        return {"movement": self._movement.state(), "ended": self.ended}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self._movement.restore(state["movement"])
        self.ended = state["ended"]
