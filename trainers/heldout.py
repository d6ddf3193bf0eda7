"""Weights of CoCoA-Mix fitted to held-out images. Beyond the paper: see docs/WEIGHTS.md.

Between the two stages, one prompt per fold is tuned without the fold's images. pi^in and a temperature are then fitted
to the similarities that each image has under the prompt that was tuned without it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.coa import heldout
from cocoamix.coa.folds import Folds
from cocoamix.errors import UserError
from cocoamix.io.checkpoints import load_into
from cocoamix.model import Phase
from cocoamix.prompts.context import PromptLearner, as_one
from cocoamix.run.protocol import digest
from cocoamix.seeding import derive_seed

if TYPE_CHECKING:
    from .cocoamix import CoCoAMixModel

FOLD = "fold_prompt"  # the part that exists during a fold only


class HeldOutWeights:
    """The folds of a model. It is false if the model has none."""

    def __init__(self, model: CoCoAMixModel) -> None:
        settings, task = model.settings, model.task
        self.model = model
        self.wanted = bool(model.two_stages and settings.WEIGHT_FIT == "heldout" and task.labels)
        self.folds = Folds(task.labels, derive_seed(model.seed, "folds"), self.wanted)
        self.fitted: dict[str, Any] | None = self.folds.fitted  # the fit, or why there is none
        self.learners: list[PromptLearner] | None = None  # of the current fold

    def __bool__(self) -> bool:
        return bool(self.folds)

    def protocol(self) -> dict[str, Any]:
        """Return what the protocol states of the folds."""
        if not self.wanted:
            return {}
        pairs = [[name, fold] for name, fold in zip(self.model.task.images, self.folds.fold_of, strict=False)]
        return {"folds": self.folds.count, **({"splits": {"folds": digest(pairs)}} if self.folds else {})}

    # ------------------------------------------------------------------ the folds

    def phases(self, epochs: int, optim: CfgNode) -> list[Phase]:
        """Return a phase for each fold: as long as the first stage, without the images that it holds out."""
        return [
            Phase("fold", epochs, {FOLD: optim}, views=epochs, number=fold, images=self._training(fold))
            for fold in range(self.folds.count)
        ]

    def _training(self, fold: int) -> tuple[int, ...]:
        return tuple(index for index, held_out_in in enumerate(self.folds.fold_of) if held_out_in != fold)

    def begin(self, phase: Phase) -> None:
        """Start a fold with a new prompt, which is tuned like the final one."""
        count, used = len(self.folds.fold_of), len(phase.images or ())
        words = f"{used:,} images, {count - used:,} held out"
        self.model.notes.append(f"** Fold {phase.number + 1} of {self.folds.count}: {words} **")
        self.learners = self._make_learners(phase.number)
        self.model.parts[FOLD] = as_one(self.learners)
        self._began = time.monotonic()

    def _make_learners(self, fold: int) -> list[PromptLearner]:
        seed = derive_seed(self.model.seed, "context", "fold", fold)
        return [self.model.make_learner(clip, self.model.classnames, seed) for clip in self.model.clip.each()]

    def end(self, phase: Phase, images: Callable[[], tuple[Tensor, Tensor, Tensor]]) -> bool:
        """Keep the prompt of a fold; after the last fold, fit pi^in and the temperature. Return whether that was it."""
        self._add_time()
        last = self.folds.add({name: value.detach().cpu() for name, value in self.model.parts[FOLD].named_parameters()})
        del self.model.parts[FOLD]
        self.learners = None
        if last:
            self._fit(*images())
        return last

    @torch.no_grad()
    def _fit(self, features: Tensor, labels: Tensor, indices: Tensor) -> None:
        """Fit pi^in and the temperature, with each image's similarities under the prompt tuned without it."""
        model, began = self.model, time.monotonic()
        learned = torch.empty(len(labels), len(model.classnames), device=features.device)
        for fold, state in enumerate(self.folds.states):
            learners = self._make_learners(fold)
            load_into(as_one(learners), state, f"fold {fold + 1}")
            rows = torch.tensor([self.folds.fold_of[index] == fold for index in indices], device=features.device)
            learned[rows] = features[rows] @ model.encode_learners(learners).t()
        text = model.hand_crafted.of(model.classnames)
        fit = heldout.fit(features @ text.t(), learned, labels, model.clip.logit_scale)
        model.weights.inside.fill_(math.log(fit.pi_in / (1 - fit.pi_in)))
        seconds = round(self.folds.seconds + time.monotonic() - began, 3)
        self.fitted = {"folds": self.folds.count, **fit.as_dict(), "seconds": seconds}
        model.notes.append(
            f"Held-out fit over {fit.images:,} images: pi^in {fit.pi_in:.4f}, cross-entropy {fit.nll:.4f}; "
            f"{fit.calibrated_nll:.4f} at the temperature {fit.temperature:.5f}"
        )

    # ------------------------------------------------------------------ resuming and evaluation

    def _add_time(self) -> None:
        now = time.monotonic()
        self.folds.seconds, self._began = self.folds.seconds + now - self._began, now

    def state(self) -> dict[str, Any]:
        """Return the state that a resume needs."""
        if self.learners is not None:
            self._add_time()
        return {"heldout": {**self.folds.state(), "fitted": self.fitted}} if self.folds else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from `state`."""
        if self.folds:
            self.folds.restore(state["heldout"])
            self.fitted = self.folds.fitted

    def check(self) -> None:
        """Before training, refuse an evaluation at a temperature that will not be fitted, and note missing folds."""
        settings = self.model.settings
        if settings.CALIBRATED and settings.WEIGHT_FIT != "heldout":
            raise UserError(
                f"TRAINER.COCOAMIX.CALIBRATED is True, but WEIGHT_FIT {settings.WEIGHT_FIT} fits no temperature: use "
                "WEIGHT_FIT heldout, or CALIBRATED False."
            )
        if settings.CALIBRATED and not self.folds:
            raise self._no_temperature()
        if "why" in (self.fitted or {}):
            assert self.fitted is not None
            why = self.fitted["why"]
            self.model.notes.append(
                f"WEIGHT_FIT is heldout, but {why}: the weights are fitted to the training images (train)"
            )

    def temperature(self) -> float | None:
        """Return the fitted temperature of the mixture if CALIBRATED is set, else None."""
        if not self.model.settings.CALIBRATED:
            return None
        if "temperature" not in (self.fitted or {}):
            raise self._no_temperature()
        temperature = (self.fitted or {})["temperature"]
        if not isinstance(temperature, float) or not 0 < temperature < math.inf:
            raise UserError("The checkpoint's temperature is not a positive number: it was altered. Restore it.")
        return temperature

    def _no_temperature(self) -> UserError:
        """Return the error for CALIBRATED without a fitted temperature."""
        if "why" in (self.fitted or {}):
            assert self.fitted is not None
            reason = f"no temperature is fitted, because {self.fitted['why']}. Use CALIBRATED False."
        else:
            reason = (
                "the checkpoint has no temperature: it was not trained with WEIGHT_FIT heldout, or it was written "
                "before the last fold ended. Use CALIBRATED False, or a model trained with WEIGHT_FIT heldout."
            )
        return UserError(f"TRAINER.COCOAMIX.CALIBRATED is True, but {reason}")


__all__ = ["FOLD", "HeldOutWeights"]
