"""CoCoOp, conditional context optimisation (Zhou et al., CVPR 2022): a context conditioned on each image."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from cocoamix.prompts.conditional import ConditionalPromptLearner
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from .coop import CoOp


@register(TRAINER_REGISTRY)
class CoCoOp(CoOp):
    """A small network shifts the context for each image, so every image needs its own pass of the text encoder."""

    section = "COCOOP"
    prompt_learner: ConditionalPromptLearner

    def make_learner(self) -> ConditionalPromptLearner:
        words, _ = self.context()
        seed = derive_seed(self.seed, "context")
        return ConditionalPromptLearner(self.clip, self.classnames, self.settings.N_CTX, words, seed)

    def unused_keys(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Ignore nothing: a KgCoOp file, whose network was never trained, is not a CoCoOp checkpoint."""
        return ()

    def before_test(self) -> None:
        """Prepare nothing: images share no text features."""

    def class_logits(self, image_features: Tensor) -> Tensor:
        text = self.clip.encode_prompts(self.prompt_learner(image_features))
        return self.clip.logit_scale * torch.einsum("bd,bcd->bc", image_features, text)

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        logits = self.class_logits(image_features)
        return {"loss": F.cross_entropy(logits, labels)}, logits
