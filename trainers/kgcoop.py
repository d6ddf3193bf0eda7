"""KgCoOp, knowledge-guided context optimisation (Yao et al., CVPR 2023): CoOp kept close to the hand-crafted prompt."""

from __future__ import annotations

import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from cocoamix.registry import register

from .coop import CoOp


def guided_terms(
    logits: Tensor, labels: Tensor, text: Tensor, hand_crafted: Tensor, weight: float
) -> dict[str, Tensor]:
    """Return KgCoOp's loss, CE + weight (1 - mean cosine of learned and hand-crafted text features), and its terms."""
    fit = F.cross_entropy(logits, labels)
    distance = 1 - (text * hand_crafted).sum(dim=-1).mean()
    return {"loss": fit + weight * distance, "ce": fit, "kg": distance}


@register(TRAINER_REGISTRY)
class KgCoOp(CoOp):
    """CoOp with the loss CE + W (1 - mean cosine of learned and hand-crafted text features)."""

    templates_of = "KgCoOp"
    trains_with_template = True

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        text = self.text_features()
        logits = self.logits(image_features, text)
        return guided_terms(logits, labels, text, self.hand_crafted_features(), self.settings.W), logits
