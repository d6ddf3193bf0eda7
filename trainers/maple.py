"""MaPLe (Khattak et al., CVPR 2023): coupled prompts in the first layers of the text and the image encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn

from cocoamix.config import keys
from cocoamix.errors import UserError
from cocoamix.prompts.multimodal import MultiModalPromptLearner, need_vit
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from .coop import CoOp


@register(TRAINER_REGISTRY)
class MaPLe(CoOp):
    """CoOp's loss with prompts in both encoders. Image features change in training, so they are not stored."""

    section = "MAPLE"
    folder = "MultiModalPromptLearner"
    frozen_images = False
    prompt_learner: MultiModalPromptLearner

    def make_learner(self) -> MultiModalPromptLearner:
        settings, sizes = self.settings, self.clip.sizes
        need_vit(self.clip, "MaPLe")
        layers = min(cast(int, sizes.vision_layers), sizes.text_layers)
        if layers < settings.PROMPT_DEPTH:
            raise UserError(
                f"TRAINER.MAPLE.PROMPT_DEPTH is {settings.PROMPT_DEPTH}, but {self.clip.name} has {layers} layers."
            )
        return MultiModalPromptLearner(
            self.clip,
            self.classnames,
            settings.N_CTX,
            keys.context_words(settings.CTX_INIT),
            settings.PROMPT_DEPTH,
            derive_seed(self.seed, "context"),
        )

    def trained_module(self) -> nn.Module:
        # Checkpoints of the original code hold the whole model, with the learner under this name.
        return nn.ModuleDict({"prompt_learner": self.prompt_learner})

    def unused_keys(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Return the prefixes of the frozen encoders, which checkpoints of the original code include."""
        return "image_encoder.", "text_encoder.", "logit_scale"

    def vision_prompts(self) -> Sequence[Tensor]:
        """Return the learned tokens of the image encoder, one tensor for each of the first layers."""
        return self.prompt_learner.vision_prompts()

    def encode(self, inputs: Tensor) -> Tensor:
        """Return the (B, embedding) unit features of images with the current vision prompts."""
        return self.clip.encode_image_with(inputs, self.vision_prompts())
