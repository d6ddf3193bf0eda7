"""MaPLe (Khattak et al., CVPR 2023): coupled prompts in the first layers of the text and the image encoder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import torch
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn

from cocoamix.config import keys
from cocoamix.errors import UserError
from cocoamix.model import IMAGES, Classifier, Losses
from cocoamix.prompts.multimodal import MultiModalPromptLearner, need_vit
from cocoamix.registry import register
from cocoamix.seeding import derive_seed
from cocoamix.trainer import CLIPTrainer

from .coop import CoOpModel


class MaPLeModel(CoOpModel):
    """CoOp's loss with prompts in both encoders. Image features change in training, so it reads images."""

    section = "MAPLE"
    folder = "MultiModalPromptLearner"
    reads = IMAGES

    def make_learner(self, classnames: Sequence[str]) -> MultiModalPromptLearner:
        settings, sizes = self.settings, self.clip.sizes
        need_vit(self.clip, "MaPLe")
        layers = min(cast(int, sizes.vision_layers), sizes.text_layers)
        if layers < settings.PROMPT_DEPTH:
            raise UserError(
                f"TRAINER.MAPLE.PROMPT_DEPTH is {settings.PROMPT_DEPTH}, but {self.clip.name} has {layers} layers."
            )
        return MultiModalPromptLearner(
            self.clip,
            classnames,
            settings.N_CTX,
            keys.context_words(settings.CTX_INIT),
            settings.PROMPT_DEPTH,
            derive_seed(self.seed, "context"),
        )

    def trained_module(self) -> nn.Module:
        # Checkpoints of the original code hold the whole model, with the learner under this name.
        return nn.ModuleDict({"prompt_learner": self.learner})

    def unused_keys(self, state: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Return the prefixes of the frozen encoders, which checkpoints of the original code include."""
        return "image_encoder.", "text_encoder.", "logit_scale"

    def encode(self, images: Tensor) -> Tensor:
        """Return the (B, embedding) unit features of images with the current vision prompts."""
        return self.clip.encode_image_with(images, self.learner.vision_prompts())

    def loss(self, inputs: Tensor, labels: Tensor, training: Collection[str] = ()) -> Losses:
        return super().loss(self.encode(inputs), labels)

    @torch.no_grad()
    def classifier(self, classnames: Sequence[str] | None = None, synsets: Sequence[str] = ()) -> Classifier:
        classifier = super().classifier(classnames)
        classifier.vision_prompts = [tokens.detach() for tokens in self.learner.vision_prompts()]
        return classifier


@register(TRAINER_REGISTRY)
class MaPLe(CLIPTrainer):
    """Trains `MaPLeModel`."""

    Model = MaPLeModel
