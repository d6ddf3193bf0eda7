"""KgCoOp, knowledge-guided context optimisation (Yao et al., CVPR 2023): CoOp kept close to the hand-crafted prompt."""

from __future__ import annotations

import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from cocoamix.model import Losses
from cocoamix.registry import register
from cocoamix.trainer import CLIPTrainer

from .coop import CoOpModel


class KgCoOpModel(CoOpModel):
    """CoOp with the loss CE + W (1 - mean cosine of learned and hand-crafted text features)."""

    templates_of = "KgCoOp"
    trains_with_template = True

    def text_loss(self, features: Tensor, text: Tensor, labels: Tensor) -> Losses:
        logits = self.logits(features, text)
        fit = F.cross_entropy(logits, labels)
        distance = 1 - (text * self.hand_crafted_features(self.classnames)).sum(dim=-1).mean()
        return Losses(fit + self.settings.W * distance, logits, {"ce": fit, "kg": distance})


@register(TRAINER_REGISTRY)
class KgCoOp(CLIPTrainer):
    """Trains `KgCoOpModel`."""

    Model = KgCoOpModel
