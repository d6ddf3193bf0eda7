"""Zero-shot CLIP: hand-crafted prompts without training."""

from __future__ import annotations

from collections.abc import Sequence

from dassl.engine import TRAINER_REGISTRY
from yacs.config import CfgNode

from cocoamix.clip import templates
from cocoamix.clip.interface import AnyCLIP
from cocoamix.config import keys
from cocoamix.model import Classifier, Matrices, PromptModel, Task
from cocoamix.prompts.hand_crafted import HandCraftedPrompt
from cocoamix.registry import register
from cocoamix.trainer import CLIPTrainer


class ZeroshotModel(PromptModel):
    """Zero-shot CLIP with one template per dataset."""

    hand_crafted: HandCraftedPrompt

    def __init__(self, clip: AnyCLIP, task: Task, settings: CfgNode, seed: int) -> None:
        super().__init__(clip, task, settings, seed)
        self.hand_crafted = HandCraftedPrompt(clip, self.choose_templates(), task.dataset)
        self.notes += [f'Template: "{template}"' for template in self.templates]

    def choose_templates(self) -> Sequence[str]:
        """Return the templates whose text features are averaged."""
        return ["dataset"]

    def classifier(self, classnames: Sequence[str] | None = None, synsets: Sequence[str] = ()) -> Classifier:
        names = self.classnames if classnames is None else list(classnames)
        text = self.hand_crafted.of(names)
        matrices = Matrices(self.clip.logit_scale * text)
        return Classifier(names, lambda features: self.logits(features, text), self.encode, matrices)


class Zeroshot2Model(ZeroshotModel):
    """Zero-shot CLIP with the averaged text features of seven (or eighty) ImageNet templates and the dataset's own."""

    @classmethod
    def settings_of(cls, cfg: CfgNode) -> CfgNode:
        settings = super().settings_of(cfg).clone()
        settings.defrost()
        settings.TEMPLATES = cfg.TRAINER.ZEROSHOT.ENSEMBLE
        return settings

    @classmethod
    def check(cls, cfg: CfgNode) -> None:
        keys.check_below("TRAINER.ZEROSHOT", cfg.TRAINER.ZEROSHOT)

    def choose_templates(self) -> Sequence[str]:
        return templates.ensemble_templates(self.task.dataset, self.settings.TEMPLATES)


@register(TRAINER_REGISTRY)
class ZeroshotCLIP(CLIPTrainer):
    """Evaluates `ZeroshotModel`."""

    Model = ZeroshotModel
    reads_section = False


@register(TRAINER_REGISTRY)
class ZeroshotCLIP2(ZeroshotCLIP):
    """Evaluates `Zeroshot2Model`."""

    Model = Zeroshot2Model
