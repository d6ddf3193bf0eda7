"""KgCoOp, knowledge-guided context optimisation (Yao et al., CVPR 2023): CoOp held near the hand-crafted prompt."""

from __future__ import annotations

import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.registry import register

from . import config
from .coop import CoOp


@register(TRAINER_REGISTRY)
class KgCoOp(CoOp):
    """Cross-entropy + W (1 - mean cosine of the learned and the hand-crafted text features)."""

    templates_of = "KgCoOp"
    trains_with_template = True
    followed_keys = ("TEMPLATE", *CoOp.followed_keys)

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        config.check_range("TRAINER.COOP.W", cfg.TRAINER.COOP.W, 0)

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        text = self.text_features()
        logits = self.logits(image_features, text)
        fit = F.cross_entropy(logits, labels)
        distance = 1 - (text * self.handmade).sum(dim=-1).mean()
        return {"loss": fit + self.settings.W * distance, "ce": fit, "kg": distance}, logits
