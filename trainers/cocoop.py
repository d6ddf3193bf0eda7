"""CoCoOp, conditional context optimisation (Zhou et al., CVPR 2022): a context conditioned on each image."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from cocoamix.model import Classifier, Losses
from cocoamix.prompts.conditional import ConditionalPromptLearner
from cocoamix.registry import register
from cocoamix.seeding import derive_seed
from cocoamix.trainer import CLIPTrainer

from .coop import CoOpModel


class CoCoOpModel(CoOpModel):
    """A small network shifts the context for each image, so every image needs its own pass of the text encoder."""

    section = "COCOOP"

    def make_learner(self, classnames: Sequence[str]) -> ConditionalPromptLearner:
        words, _ = self.context()
        return ConditionalPromptLearner(
            self.clip, classnames, self.settings.N_CTX, words, derive_seed(self.seed, "context")
        )

    def unused_keys(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Ignore nothing: a KgCoOp file, whose network was never trained, is not a CoCoOp checkpoint."""
        return ()

    def conditional_logits(self, features: Tensor, learner: ConditionalPromptLearner) -> Tensor:
        """Return the (B, C) logits of images, each with its own prompts."""
        text = self.clip.encode_prompts(learner(features))
        return self.clip.logit_scale * torch.einsum("bd,bcd->bc", features, text)

    def loss(self, inputs: Tensor, labels: Tensor, training: Collection[str] = ()) -> Losses:
        logits = self.conditional_logits(inputs, self.learner)
        return Losses(F.cross_entropy(logits, labels), logits)

    def classifier(self, classnames: Sequence[str] | None = None, synsets: Sequence[str] = ()) -> Classifier:
        names = self.classnames if classnames is None else list(classnames)
        learner = self.learner_of(names)
        reason = "it makes prompts for every image, so no fixed matrix gives its logits"
        return self.mixed(names, lambda features: self.conditional_logits(features, learner), reason)


@register(TRAINER_REGISTRY)
class CoCoOp(CLIPTrainer):
    """Trains `CoCoOpModel`."""

    Model = CoCoOpModel
