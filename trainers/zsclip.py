"""Zero-shot CLIP: hand-crafted prompts, nothing trained."""

from __future__ import annotations

from collections.abc import Sequence

from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from cocoamix.clip import templates

from .base import CLIPTrainer


@TRAINER_REGISTRY.register()
class ZeroshotCLIP(CLIPTrainer):
    """One template per dataset."""

    def templates(self) -> Sequence[str]:
        return [templates.dataset_template(self.cfg.DATASET.NAME)]

    def build_prompts(self) -> None:
        for template in self.templates():
            print(f'Template: "{template}"')

    def text_features(self) -> Tensor:
        return self.clip.encode_classes(self.classnames, self.templates())


@TRAINER_REGISTRY.register()
class ZeroshotCLIP2(ZeroshotCLIP):
    """CLIP's seven ImageNet templates and the dataset's own, their features averaged."""

    def templates(self) -> Sequence[str]:
        return templates.ensemble_templates(self.cfg.DATASET.NAME)
