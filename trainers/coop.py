"""CoOp, context optimisation (Zhou et al., IJCV 2022): a context learned by cross-entropy."""

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
from cocoamix.run.checkpointer import parameters_of
from cocoamix.seeding import derive_seed

from .base import CLIPTrainer


@register(TRAINER_REGISTRY)
class CoOp(CLIPTrainer):
    """A context shared by all classes, or one for each (CSC)."""

    clip: FrozenCLIP
    ensembles: tuple[str, ...] = ("none", "uniform")
    folder = "prompt_learner"  # registered name of the model, and so its checkpoint folder

    def build_prompts(self) -> None:
        self.prompt_learner = self.make_learner()
        detail(f'Initial context: "{self.prompt_learner.initial_context}"')
        detail(f"Number of context words (tokens): {self.prompt_learner.n_ctx}")
        self.register(self.folder, self.trained_module(), self.optim_settings())
        if self.cfg.MODEL.INIT_WEIGHTS:
            self.load_initial_weights(self.folder, self.cfg.MODEL.INIT_WEIGHTS)

    def context(self) -> tuple[str, int]:
        """Return the initial words of the context, and the length to pad it to; 0 for no padding."""
        return context_words(self.settings.CTX_INIT), 0

    def optim_settings(self) -> CfgNode:
        """Return the optimizer settings of the context, a node like OPTIM."""
        return self.cfg.OPTIM

    def trained_module(self) -> nn.Module:
        """Return the module to train, with the parameter names of its checkpoint."""
        return self.prompt_learner

    def make_learner(self) -> PromptLearner:
        """Return the prompt learner of the current classes."""
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

    def adopt_settings(self, settings: Mapping[str, Any]) -> None:
        """Adopt the settings and rebuild the prompt learner with them if they changed."""
        before = self.settings
        super().adopt_settings(settings)
        if self.settings != before:
            learner = self.make_learner()
            load_into(learner, parameters_of(self.prompt_learner), "the checkpoint")
            self.prompt_learner = learner
            self._models[self.folder] = self.trained_module()

    def text_features(self) -> Tensor:
        return self.clip.encode_prompts(self.prompt_learner())

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        logits = self.logits(image_features, self.text_features())
        return {"loss": F.cross_entropy(logits, labels)}, logits
