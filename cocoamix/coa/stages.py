"""What each epoch of a training of CoCoA-Mix does, and how a second stage ends.

First the prompt; then, where the weights are fitted to held-out images, a prompt for each fold; then the weights. All
are epochs of one loop, so that a run which is killed in any of them resumes there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .convergence import Movement


@dataclass(frozen=True)
class Stages:
    """The epochs of a training.

    learns_weights: whether there are weights to learn at all.
    two: whether they are learned after the prompt.
    first: epochs of the prompt. folds: prompts that are tuned between the stages, each as long.
    weights: epochs of the second stage; 0 until the weights stand still. most: the most that it has.
    """

    learns_weights: bool
    two: bool
    first: int
    folds: int = 0
    weights: int = 0
    most: int = 0

    @property
    def before_weights(self) -> int:
        """How many epochs the second stage comes after."""
        return self.first * (1 + self.folds)

    @property
    def total(self) -> int:
        """How many epochs there are at most."""
        return self.before_weights + self.most if self.two else self.first

    @property
    def views(self) -> int:
        """How many augmentations of an image the epochs can show."""
        return self.first + (self.weights if self.two else 0)

    def phase(self, epoch: int) -> str:
        """Return what an epoch trains: `prompt`, `fold` (the prompt of a fold), `weights`, or `both`."""
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
        """Say whether an epoch is the last one of its fold."""
        return (epoch + 1) % self.first == 0

    def view(self, epoch: int) -> int:
        """Return which augmentation an epoch shows.

        A fold shows those of the first stage again, and so does a second stage of unknown length: neither encodes
        anything anew.
        """
        if not self.two or epoch < self.first:
            return epoch
        known = epoch >= self.before_weights and self.weights > 0
        return self.first + epoch - self.before_weights if known else epoch % self.first

    def epochs_of(self, weights: bool, done: int) -> int:
        """Return how many of the epochs that are done trained the weights, or else the prompt."""
        if not self.two:
            return done
        return max(0, done - self.before_weights) if weights else min(done, self.first)


class SecondStage:
    """Follows pi through the second stage, and says when and why it ends."""

    def __init__(self, stages: Stages, pi: Sequence[float], tolerance: float, most_steps: int) -> None:
        self.stages, self.tolerance, self.most_steps = stages, tolerance, most_steps
        self.ended: dict[str, Any] | None = None  # how long it was and why it ended, once it has
        self.follow(pi)

    def follow(self, pi: Sequence[float]) -> None:
        """Measure from here how far pi moves."""
        self._movement = Movement(pi)

    def after_epoch(self, epoch: int, last: bool, pi: Sequence[float], steps: int) -> bool:
        """Take in (pi^in, pi^out) after an epoch of so many steps. Return whether the stage ends with it.

        last: whether no epoch is left.
        """
        moved = self._movement.after_epoch(pi, steps)
        epochs = epoch + 1 - self.stages.before_weights
        how_far = "" if moved is None else f": pi moved by {moved:.6f} in the last round"
        reason = ""
        if self.stages.weights:
            if last:
                reason = "length"
                print(f"The weights trained for {epochs} epochs, as set{how_far}")
        elif moved is not None and moved < self.tolerance:
            reason = "converged"
            print(f"The weights converged after {epochs} epochs{how_far}")
        elif last:
            reason = "bound"
            print(f"The weights stopped at the bound of {self.most_steps} steps{how_far}")
        if reason:
            facts = {"epochs": epochs, "steps": epochs * steps, "ended": reason, "moved": moved}
            self.ended = {**facts, "pi_in": pi[0], "pi_out": pi[1]}
        return bool(reason)

    def state(self) -> dict[str, Any]:
        """Return where it stands, for a resume."""
        return {"movement": self._movement.state(), "ended": self.ended}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._movement.restore(state["movement"])
        self.ended = state["ended"]
