"""Zero-shot CLIP: hand-crafted prompts, nothing trained."""

from __future__ import annotations

from collections.abc import Sequence

from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import templates
from cocoamix.errors import UserError
from cocoamix.registry import register

from .base import CLIPTrainer
from .config import ENSEMBLES


@register(TRAINER_REGISTRY)
class ZeroshotCLIP(CLIPTrainer):
    """One template per dataset."""

    def templates(self) -> Sequence[str]:
        return [templates.dataset_template(self.cfg.DATASET.NAME)]

    def build_prompts(self) -> None:
        for template in self.templates():
            print(f'Template: "{template}"')

    def text_features(self) -> Tensor:
        return self.clip.encode_classes(self.classnames, self.templates())


@register(TRAINER_REGISTRY)
class ZeroshotCLIP2(ZeroshotCLIP):
    """CLIP's seven (or eighty) ImageNet templates and the dataset's own, their features averaged."""

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        if cfg.TRAINER.ZEROSHOT.ENSEMBLE not in ENSEMBLES:
            raise UserError(f"TRAINER.ZEROSHOT.ENSEMBLE is {cfg.TRAINER.ZEROSHOT.ENSEMBLE}; it must be 7 or 80.")

    def templates(self) -> Sequence[str]:
        return templates.ensemble_templates(self.cfg.DATASET.NAME, self.cfg.TRAINER.ZEROSHOT.ENSEMBLE)
