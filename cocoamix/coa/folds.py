"""Cross-validation folds over the training images, for weights fitted to held-out images.

Beyond the paper: see docs/WEIGHTS.md. The fit itself is in `cocoamix.coa.heldout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .heldout import assign_folds, count_folds

SINGLE = "a class has a single training image, which cannot be held out"


class Folds:
    """The held-out images of each fold, the prompts of the finished folds, and the fit.

    Args:
        labels: Labels of the training images.
        seed: Seed of the assignment of images to folds.
        wanted: Whether the run uses folds at all.
    """

    def __init__(self, labels: Sequence[int] = (), seed: int = 0, wanted: bool = False) -> None:
        self.count = count_folds(labels) if wanted else 0
        self.fold_of = assign_folds(labels, self.count, seed) if self.count else []
        self.states: list[dict[str, Tensor]] = []  # one prompt per finished fold
        self.seconds = 0.0  # spent on the folds so far
        self.fitted: dict[str, Any] | None = None  # the fit, or why there is none; None before the fit
        if wanted and not self.count:
            self.fitted = {"folds": 0, "why": SINGLE}

    def __bool__(self) -> bool:
        return self.count > 0

    def add(self, prompt: Mapping[str, Tensor]) -> bool:
        """Store the learned prompt of a fold; return whether that was the last fold."""
        self.states.append({name: value.clone() for name, value in prompt.items()})
        return len(self.states) == self.count

    def state(self) -> dict[str, Any]:
        """Return the state that a resume needs."""
        return {"states": self.states, "seconds": self.seconds, "fitted": self.fitted}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        self.states, self.seconds = list(state["states"]), float(state["seconds"])
        self.fitted = state["fitted"]
