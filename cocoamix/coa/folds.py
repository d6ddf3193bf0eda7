"""Folds over the training images, for weights that are fitted to images which a prompt has not seen.

Beyond the paper: see docs/METHOD.md. What is fitted, and how, is in `cocoamix.coa.heldout`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .heldout import count_folds, deal_into_folds

SINGLE = "a class has a single training image, which cannot be left out"


class Folds:
    """Which image each fold leaves out, the prompts of the finished folds, and what was fitted.

    labels: of the training images. wanted: whether there are to be folds at all.
    """

    def __init__(self, labels: Sequence[int] = (), seed: int = 0, wanted: bool = False) -> None:
        self.count = count_folds(labels) if wanted else 0
        self.fold_of = deal_into_folds(labels, self.count, seed) if self.count else []
        self.states: list[dict[str, Tensor]] = []  # the prompts of the folds that are finished
        self.seconds = 0.0
        self.fitted: dict[str, Any] | None = None  # what was fitted, once it is, or why it was not
        if wanted and not self.count:
            self.fitted = {"folds": 0, "why": SINGLE}

    def __bool__(self) -> bool:
        return self.count > 0

    def kept(self, items: Sequence[Any], fold: int) -> list[Any]:
        """Return the training images that a fold does not leave out."""
        return [item for item, its in zip(items, self.fold_of, strict=True) if its != fold]

    def keep(self, prompt: Mapping[str, Tensor]) -> bool:
        """Keep what a fold has learned; return whether it was the last one."""
        self.states.append({name: value.clone() for name, value in prompt.items()})
        return len(self.states) == self.count

    def state(self) -> dict[str, Any]:
        """Return what a resume needs."""
        return {"states": self.states, "seconds": self.seconds, "fitted": self.fitted}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self.states, self.seconds = list(state["states"]), float(state["seconds"])
        self.fitted = state["fitted"]
