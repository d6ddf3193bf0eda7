"""Weights fitted to held-out images: a prompt for each fold, tuned as the final one, between the two stages.

Beyond the paper: see docs/METHOD.md. What is fitted, and how, is in `cocoamix.heldout`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from yacs.config import CfgNode

from cocoamix import checkpoints, heldout, images
from cocoamix.clip import FrozenCLIP
from cocoamix.encoding import Source
from cocoamix.errors import UserError
from cocoamix.images import derive_seed
from cocoamix.prompts import PromptLearner, as_one

from . import protocol
from .loaders import loader_over
from .saving import trained
from .stages import FOLD, StagedTrainer


class FoldTrainer(StagedTrainer):
    """A trainer whose pi^in may be fitted to images that the prompt was tuned without."""

    learners: list[PromptLearner]
    fold_learners: list[PromptLearner]
    _fold_states: list[dict[str, Tensor]]  # the prompts of the folds that are finished
    heldout: dict[str, Any] | None = None  # what was fitted, once it is, or why it was not

    def make_learner(self, clip: FrozenCLIP, names: Sequence[str], seed: int | None = None) -> PromptLearner:
        """Return a prompt before some names. seed: of a random context, if not the final prompt's."""
        raise NotImplementedError(f"{type(self).__name__} defines no make_learner")

    def encode_learners(self, learners: Sequence[PromptLearner]) -> Tensor:
        """Return the (C, embedding) text features of the prompts of each backbone."""
        raise NotImplementedError(f"{type(self).__name__} defines no encode_learners")

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        mix = cfg.TRAINER[self.section]
        if mix.WEIGHT_FIT == "heldout" and cfg.TEST.FINAL_MODEL == "best_val":
            raise UserError(
                "TEST.FINAL_MODEL is best_val, but TRAINER.COCOAMIX.WEIGHT_FIT heldout fits the weights to the prompt "
                "of the last epoch: use last_step, or WEIGHT_FIT train."
            )
        if mix.WEIGHT_FIT == "heldout" and mix.ENSEMBLE == "coa" and cfg.MODEL.INIT_WEIGHTS:
            raise UserError(
                f"MODEL.INIT_WEIGHTS is {cfg.MODEL.INIT_WEIGHTS}, but TRAINER.COCOAMIX.WEIGHT_FIT is heldout: a prompt "
                "that starts from a checkpoint may have seen the images that its fold leaves out. "
                "Leave MODEL.INIT_WEIGHTS out, or use WEIGHT_FIT train."
            )

    # ------------------------------------------------------------------ laying out

    def plan_folds(self) -> None:
        """Deal the training images into folds, where WEIGHT_FIT is heldout and every class has two images."""
        self.folds, self.heldout, self._fold_states, self._fold_seconds = 0, None, [], 0.0
        if not self.two_stages or self.settings.WEIGHT_FIT != "heldout":
            return
        self._whole = self.train_loader_x
        items = cast(images.ImageItems, self._whole.dataset).items
        labels = [int(item.label) for item in items]
        self.folds = heldout.count_folds(labels)
        if not self.folds:
            why = "a class has a single training image, which cannot be left out"
            print(f"WEIGHT_FIT is heldout, but {why}: the weights are fitted to the training images (train)")
            self.heldout = {"folds": 0, "why": why}
        else:
            self._fold_of = heldout.deal_into_folds(labels, self.folds, derive_seed(self.seed, "folds"))
            self.protocol["splits"]["folds"] = protocol.digest(
                [[images.image_name(item.impath), fold] for item, fold in zip(items, self._fold_of, strict=True)]
            )
        self.protocol["folds"] = self.folds

    @property
    def trains_weights(self) -> bool:
        """Once pi^in is fitted only pi^out is left, and without out-classes there is none."""
        return super().trains_weights and not (self.folds and self.settings.OUT_CLASSES == "none")

    @property
    def fold(self) -> int:
        """The present fold."""
        return self.epoch // self.first_epochs - 1

    # ------------------------------------------------------------------ a fold's prompt

    def before_train(self) -> None:
        if self.settings.CALIBRATED and self.settings.WEIGHT_FIT != "heldout":
            raise UserError(
                "TRAINER.COCOAMIX.CALIBRATED is True, but no temperature is fitted where WEIGHT_FIT is "
                f"{self.settings.WEIGHT_FIT}: use WEIGHT_FIT heldout, or CALIBRATED False."
            )
        if self.settings.CALIBRATED and not self.folds:
            raise self._no_temperature()  # now, not in the evaluation after the training
        super().before_train()

    def before_epoch(self) -> None:
        if self.phase == "fold" and FOLD not in self._models:
            self._begin_fold(self.fold)
        self._epoch_began = time.monotonic()
        super().before_epoch()

    def _begin_fold(self, fold: int) -> None:
        """Tune a prompt from now on as the final one was, on the images that the fold does not leave out."""
        items = cast(images.ImageItems, self._whole.dataset).items
        kept = [item for item, its in zip(items, self._fold_of, strict=True) if its != fold]
        print(f"** Fold {fold + 1} of {self.folds}: {len(kept):,} images, {len(items) - len(kept):,} are left out **")
        self.train_loader_x = loader_over(self.cfg, self._whole, kept, train=True, seed=self.seed)
        self.fold_learners = self._make_fold_learners(fold)
        self.register(FOLD, as_one(self.fold_learners), self.cfg.OPTIM)

    def _make_fold_learners(self, fold: int) -> list[PromptLearner]:
        seed = derive_seed(self.seed, "context", "fold", fold)
        return [self.make_learner(clip, self.classnames, seed) for clip in self.backbones]

    def after_epoch(self) -> None:
        if self.phase == "fold":
            self._refuse_non_finite()
            self._fold_seconds += time.monotonic() - self._epoch_began
            if (self.epoch + 1) % self.first_epochs == 0:
                self._end_fold()
        super().after_epoch()

    def _end_fold(self) -> None:
        """Keep what the fold learned, and after the last one fit the weight."""
        model = self._models[FOLD]
        self._fold_states.append({name: value.clone() for name, value in trained(model).items()})
        self._let_fold_go()
        if len(self._fold_states) == self.folds:
            self._fit()

    def _let_fold_go(self) -> None:
        for registered in (self._models, self._optims, self._scheds):
            registered.pop(FOLD, None)
        self.train_loader_x = self._whole

    # ------------------------------------------------------------------ the fit

    @torch.no_grad()
    def _fit(self) -> None:
        """Fit pi^in and the temperature to the similarities of each image under the prompt that did not see it."""
        began = time.monotonic()
        features, labels, indices = self._plain_features()
        special = torch.empty(len(labels), len(self.classnames), device=self.device)
        for fold, state in enumerate(self._fold_states):
            learners = self._make_fold_learners(fold)
            checkpoints.load_into(as_one(learners), state, f"fold {fold + 1}")
            rows = torch.tensor([self._fold_of[index] == fold for index in indices], device=self.device)
            special[rows] = features[rows] @ self.encode_learners(learners).t()
        found = heldout.fit(features @ self.handmade.t(), special, labels, self.clip.logit_scale)
        self.weights.inside.fill_(math.log(found.pi_in / (1 - found.pi_in)))
        self.follow_weights()
        seconds = round(self._fold_seconds + time.monotonic() - began, 3)
        self.heldout = {"folds": self.folds, **found.plain(), "seconds": seconds}
        print(
            f"Held-out fit over {found.images:,} images: pi^in {found.pi_in:.4f}, cross-entropy {found.nll:.4f}; "
            f"{found.calibrated_nll:.4f} at the temperature {found.temperature:.5f}"
        )

    def _plain_features(self) -> tuple[Tensor, Tensor, list[int]]:
        """Return features and labels of the training images as an evaluation shows them, and their indices.

        The loader itself tells which images it read: what could not be read in an epoch may be mended by now.
        """
        items = cast(images.ImageItems, self._whole.dataset).items
        # In batches of the training's size, which a resume keeps. That of tests is free to change, and bits with it.
        loader: DataLoader[Any] = loader_over(
            self.cfg, self.test_loader, items, train=False, seed=self.seed, batch_size=self._whole.batch_size
        )
        batches = [
            (self.encode(inputs), labels, indices) for inputs, labels, indices in self.indexed_batches(loader, "train")
        ]
        features, labels, indices = (torch.cat(side) for side in zip(*batches, strict=True))
        return features, labels, indices.tolist()

    def _source(self, loader: DataLoader[Any], split: str) -> Source:
        """Encode the images of a fold in batches of the size that the first stage has.

        A fold may be smaller than a batch. Its features are then the same whether the first stage stored them or not.
        """
        source = super()._source(loader, split)
        if self.folds and split.startswith("train"):
            source.batch_size = super()._source(self._whole, split).batch_size
        return source

    # ------------------------------------------------------------------ going on, and telling

    def saved_models(self) -> list[str]:
        return [name for name in super().saved_models() if name != FOLD]

    def resume_state(self, epochs: int) -> dict[str, Any]:
        state = super().resume_state(epochs)
        if not self.folds:
            return state
        folds = {"states": self._fold_states, "seconds": self._fold_seconds, "fitted": self.heldout}
        return {**state, "heldout": folds}

    def prepare_for(self, state: Mapping[str, Any]) -> None:
        """Build the prompt of the fold that a run was killed in."""
        super().prepare_for(state)
        if FOLD in state["models"] and self.folds:
            self._begin_fold(int(state["epoch"]) // self.first_epochs - 1)

    def take_up(self, state: Mapping[str, Any]) -> None:
        super().take_up(state)
        if self.folds:
            told = state["heldout"]
            self._fold_states, self._fold_seconds = list(told["states"]), float(told["seconds"])
            self.heldout = told["fitted"]

    def take_up_origin(self, origin: Mapping[str, Any], done: int) -> None:
        super().take_up_origin(origin, done)
        if self.folds and done > self.first_epochs:
            self.heldout = origin.get("heldout")
            if done < self.max_epoch:
                raise UserError(
                    f"Checkpoints of {done} epochs are here without resume.pth, which alone has the prompts of the "
                    "folds (TRAINER.COCOAMIX.WEIGHT_FIT heldout). Restore it, or choose another --output-dir."
                )

    def provenance(self) -> dict[str, Any]:
        told = super().provenance()
        return told if self.heldout is None else {**told, "heldout": self.heldout}

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Tell of the folds that the checkpoint was trained with, not of those that this run would deal."""
        super().follow(settings)
        told = self.loaded_from.get("protocol") or {}
        self.protocol.pop("folds", None)
        self.protocol["splits"].pop("folds", None)
        if "folds" in told:
            self.protocol["folds"] = told["folds"]
            self.protocol["splits"]["folds"] = told["splits"].get("folds")

    def fitted(self) -> dict[str, Any]:
        """Return what was fitted to held-out images, of the loaded checkpoint or of this training."""
        return dict((self.loaded_from.get("heldout") if self.loaded_from else self.heldout) or {})

    def temperature(self) -> float | None:
        """Return the fitted temperature of the mixture where an evaluation is to use it."""
        if not self.settings.CALIBRATED:
            return None
        found = self.fitted()
        if "temperature" not in found:
            raise self._no_temperature()
        return float(found["temperature"])

    def _no_temperature(self) -> UserError:
        """Return what is said where CALIBRATED finds no temperature to use."""
        told = self.loaded_from.get("settings") or {}
        if "why" in self.fitted():
            reason = f"no temperature is fitted, because {self.fitted()['why']}. Use CALIBRATED False."
        elif told.get("TRAINER.COCOAMIX.WEIGHT_FIT") == "heldout":
            reason = (
                f"the checkpoint of epoch {self.trained_epochs} is from before the fit of the temperature, which comes "
                "after all folds. Use CALIBRATED False, or a later checkpoint."
            )
        else:
            reason = (
                "the model was not trained with WEIGHT_FIT heldout, which fits the temperature. "
                "Use CALIBRATED False, or train with it."
            )
        return UserError(f"TRAINER.COCOAMIX.CALIBRATED is True, but {reason}")

    def more_results(self) -> dict[str, Any]:
        found = self.fitted()
        return {**super().more_results(), **({"heldout": found} if found else {})}
