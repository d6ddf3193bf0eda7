"""Zero-shot CLIP: hand-crafted prompts without training."""

from __future__ import annotations

from collections.abc import Sequence

from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import templates
from cocoamix.config import keys
from cocoamix.io.screen import detail
from cocoamix.prompts.hand_crafted import HandCraftedPrompt
from cocoamix.registry import register

from .base import CLIPTrainer


@register(TRAINER_REGISTRY)
class ZeroshotCLIP(CLIPTrainer):
    """Zero-shot CLIP with one template per dataset."""

    reads_section = False

    def choose_templates(self) -> Sequence[str]:
        """Return the templates whose text features are averaged."""
        return ["dataset"]

    def make_hand_crafted(self) -> HandCraftedPrompt:
        return HandCraftedPrompt(self.clip, self.choose_templates(), self.cfg.DATASET.NAME)

    def build_prompts(self) -> None:
        for template in self.templates():
            detail(f'Template: "{template}"')

    def text_features(self) -> Tensor:
        return self.hand_crafted_features()


@register(TRAINER_REGISTRY)
class ZeroshotCLIP2(ZeroshotCLIP):
    """Zero-shot CLIP with the averaged text features of seven (or eighty) ImageNet templates and the dataset's own."""

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        keys.check_below("TRAINER.ZEROSHOT", cfg.TRAINER.ZEROSHOT)

    def choose_templates(self) -> Sequence[str]:
        return templates.ensemble_templates(self.cfg.DATASET.NAME, self.cfg.TRAINER.ZEROSHOT.ENSEMBLE)
