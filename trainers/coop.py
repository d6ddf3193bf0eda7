"""CoOp, context optimisation (Zhou et al., IJCV 2022): a context learned by cross-entropy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.coa.mixture import mix_equally
from cocoamix.config.keys import context_words
from cocoamix.errors import UserError
from cocoamix.model import RAW_FEATURES, Classifier, Losses, Matrices, PromptModel, Task
from cocoamix.prompts.context import PromptLearner, share
from cocoamix.prompts.hand_crafted import HandCraftedPrompt
from cocoamix.registry import register
from cocoamix.seeding import derive_seed
from cocoamix.trainer import CLIPTrainer


class CoOpModel(PromptModel):
    """A context shared by all classes, or one for each (CSC)."""

    ensembles: ClassVar[tuple[str, ...]] = ("none", "uniform")
    folder = "prompt_learner"  # name of the trained part, and so of its checkpoint folder
    clip: FrozenCLIP

    def __init__(self, clip: FrozenCLIP, task: Task, settings: CfgNode, seed: int) -> None:
        super().__init__(clip, task, settings, seed)
        if self.trains_with_template or (self.ensembles and settings.ENSEMBLE != "none"):
            self.hand_crafted = HandCraftedPrompt(clip, settings.TEMPLATE, task.dataset, self.templates_of)
        self.learner = self.make_learner(self.classnames)
        self.parts[self.folder] = self.trained_module()
        self.notes += [
            f'Initial context: "{self.learner.initial_context}"',
            f"Number of context words (tokens): {self.learner.n_ctx}",
        ]

    def context(self) -> tuple[str, int]:
        """Return the initial words of the context, and the length to pad it to; 0 for no padding."""
        return context_words(self.settings.CTX_INIT), 0

    def make_learner(self, classnames: Sequence[str]) -> Any:
        """Return an untrained prompt learner of some classes."""
        words, length = self.context()
        return PromptLearner(
            self.clip,
            classnames,
            n_ctx=self.settings.N_CTX,
            ctx_init=words,
            class_specific=self.settings.CSC,
            position=self.settings.CLASS_TOKEN_POSITION,
            seed=derive_seed(self.seed, "context"),
            pad_to=length,
        )

    def trained_module(self) -> nn.Module:
        """Return the module to train, with the parameter names of its checkpoint."""
        module: nn.Module = self.learner
        return module

    def hand_crafted_features(self, classnames: Sequence[str]) -> Tensor:
        """Return the (C, embedding) text features of the hand-crafted prompt."""
        assert self.hand_crafted is not None, f"{type(self).__name__} has no hand-crafted prompt here"
        return self.hand_crafted.of(classnames)

    # ------------------------------------------------------------------ training

    def text(self) -> Tensor:
        """Return the (C, embedding) unit text features of the classes of the task, with gradients."""
        return self.clip.encode_prompts(self.learner())

    def loss(self, inputs: Tensor, labels: Tensor, training: Collection[str] = ()) -> Losses:
        return self.text_loss(inputs, self.text(), labels)

    def text_loss(self, features: Tensor, text: Tensor, labels: Tensor) -> Losses:
        """Return the loss of unit image features and unit text features."""
        logits = self.logits(features, text)
        return Losses(F.cross_entropy(logits, labels), logits)

    # ------------------------------------------------------------------ evaluation

    def learner_of(self, classnames: Sequence[str]) -> Any:
        """Return the trained prompt learner for some classes."""
        if list(classnames) == self.classnames:
            return self.learner
        learner = self.make_learner(classnames)
        if learner.ctx.shape != self.learner.ctx.shape or learner.ctx.dim() == 3:
            raise UserError(
                f"TRAINER.{self.section}.CSC is True: class-specific contexts belong to the classes that they were "
                "trained on and cannot be used for others. Train with CSC False."
            )
        share(learner, self.learner)
        return learner

    @torch.no_grad()
    def classifier(self, classnames: Sequence[str] | None = None, synsets: Sequence[str] = ()) -> Classifier:
        names = self.classnames if classnames is None else list(classnames)
        text = self.clip.encode_prompts(self.learner_of(names)())
        return self.mixed(names, lambda features: self.logits(features, text), Matrices(self.clip.logit_scale * text))

    def mixed(
        self, names: list[str], logits: Callable[[Tensor], Tensor], matrices: Matrices | str, **more: Any
    ) -> Classifier:
        """Return a classifier; with ENSEMBLE uniform, its logits are averaged with those of the hand-crafted prompt."""
        if self.settings.ENSEMBLE != "uniform":
            return Classifier(names, logits, self.encode, matrices, **more)
        text = self.hand_crafted_features(names)

        def averaged(features: Tensor) -> Tensor:
            unit = F.normalize(features, dim=-1) if self.reads == RAW_FEATURES else features
            return mix_equally(logits(features), self.logits(unit, text))

        if isinstance(matrices, Matrices):
            matrices = matrices.averaged(Matrices(self.clip.logit_scale * text))
        return Classifier(names, averaged, self.encode, matrices, **more)


@register(TRAINER_REGISTRY)
class CoOp(CLIPTrainer):
    """Trains `CoOpModel`."""

    Model = CoOpModel
