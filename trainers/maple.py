"""MaPLe (Khattak et al., CVPR 2023): tokens in the first layers of both towers, those of the ViT made of the text's."""

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
    """CoOp's loss on both towers. The image side is trained, so that its features cannot be stored."""

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
        # MaPLe's own checkpoints hold the whole model, and its learner under this name.
        return nn.ModuleDict({"prompt_learner": self.prompt_learner})

    def dead_keys(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        """The frozen towers that MaPLe's own checkpoints carry along."""
        return "image_encoder.", "text_encoder.", "logit_scale"

    def vision_prompts(self) -> Sequence[Tensor]:
        """Return the learned tokens beside the patches, for each of the first layers."""
        return self.prompt_learner.vision_prompts()

    def encode(self, inputs: Tensor) -> Tensor:
        """Return (B, embedding) unit vectors of pictures, with the present vision prompts."""
        return self.clip.encode_image_with(inputs, self.vision_prompts())
