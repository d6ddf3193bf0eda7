"""CoOp, context optimisation (Zhou et al., IJCV 2022): a learned context, tuned by cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.config.keys import context_words
from cocoamix.io.checkpoints import load_into
from cocoamix.io.screen import detail
from cocoamix.prompts.context import PromptLearner
from cocoamix.registry import register
from cocoamix.run.checkpointer import trained
from cocoamix.seeding import derive_seed

from .base import CLIPTrainer


@register(TRAINER_REGISTRY)
class CoOp(CLIPTrainer):
    """A context shared by all classes, or one for each (CSC)."""

    clip: FrozenCLIP
    ensembles: tuple[str, ...] = ("none", "uniform")
    folder = "prompt_learner"  # of the checkpoints

    def build_prompts(self) -> None:
        self.prompt_learner = self.make_learner()
        detail(f'Initial context: "{self.prompt_learner.initial_context}"')
        detail(f"Number of context words (tokens): {self.prompt_learner.n_ctx}")
        self.register(self.folder, self.trained_module(), self.optim_settings())
        if self.cfg.MODEL.INIT_WEIGHTS:
            self.load_initial(self.folder, self.cfg.MODEL.INIT_WEIGHTS)

    def context(self) -> tuple[str, int]:
        """Return the words that the context starts from, and how many vectors it has at least with them."""
        return context_words(self.settings.CTX_INIT), 0

    def optim_settings(self) -> CfgNode:
        """Return a node like OPTIM, by which the context is trained."""
        return self.cfg.OPTIM

    def trained_module(self) -> nn.Module:
        """Return what is trained, under the names of its checkpoint."""
        return self.prompt_learner

    def make_learner(self) -> PromptLearner:
        """Return what embeds the prompts of the current classes."""
        words, length = self.context()
        return PromptLearner(
            self.clip,
            self.classnames,
            n_ctx=self.settings.N_CTX,
            ctx_init=words,
            class_specific=self.settings.CSC,
            position=self.settings.CLASS_TOKEN_POSITION,
            seed=derive_seed(self.seed, "context"),
            pad_to=length,
        )

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Also put what was trained among the other tokens as it was in training."""
        before = self.settings
        super().follow(settings)
        if self.settings != before:
            learner = self.make_learner()
            load_into(learner, trained(self.prompt_learner), "the checkpoint")
            self.prompt_learner = learner
            self._models[self.folder] = self.trained_module()

    def text_features(self) -> Tensor:
        return self.clip.encode_prompts(self.prompt_learner())

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        logits = self.logits(image_features, self.text_features())
        return {"loss": F.cross_entropy(logits, labels)}, logits
