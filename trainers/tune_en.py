"""T_En, tuning ensemble (Lu et al., ICML 2024): several frozen models, weighted per sample by a small network."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP, templates
from cocoamix.clip.ensemble import SeveralCLIPs
from cocoamix.clip.interface import AnyCLIP
from cocoamix.config import keys
from cocoamix.model import RAW_FEATURES, Classifier, Losses, PromptModel, Task
from cocoamix.prompts.conditional import ConditionalPromptLearner
from cocoamix.prompts.sample_weighting import make_generator, mix_probabilities, mixture_loss
from cocoamix.registry import plain_name, register
from cocoamix.run.protocol import digest
from cocoamix.run.trained_prompt import TrainedPrompt, read_prompt
from cocoamix.seeding import derive_seed
from cocoamix.trainer import CLIPTrainer

IMAGENETS = ("ImageNet", "ImageNetV2", "ImageNetSketch", "ImageNetA", "ImageNetR")
Prompt = Tensor | ConditionalPromptLearner  # (C, embedding) text features, or a learner that computes them per image

_CONTENT = "content of TRAINER.ENLEARN.PROMPTS"


class TuneEnModel(PromptModel):
    """The weight generator, which is trained, over prompts that are hand-crafted or come from other runs."""

    section = "ENLEARN"
    several = True
    reads = RAW_FEATURES
    clip: SeveralCLIPs

    def __init__(self, clip: SeveralCLIPs, task: Task, settings: CfgNode, seed: int) -> None:
        super().__init__(clip, task, settings, seed)
        self.sizes = [member.sizes.embedding for member in clip.each()]
        channels, models = sum(self.sizes), len(self.sizes)
        generator = make_generator(channels, models, settings.DOWNSCALE, derive_seed(seed, "generator"))
        self.generator = self.parts["learn_module"] = generator.to(clip.each()[0].device)
        self.prompts = self._prompts_of(self.classnames)

    @classmethod
    def check(cls, cfg: CfgNode) -> None:
        keys.check_enlearn(cfg.TRAINER.ENLEARN)

    @classmethod
    def complete(cls, task: Task, clip: AnyCLIP, settings: CfgNode, dataset: CfgNode) -> Task:
        return replace(task, prompts=_read_prompts(clip, settings.PROMPTS, dataset))

    @property
    def templates(self) -> Sequence[str]:
        if self.task.prompts:
            return []
        name = plain_name(self.task.dataset)
        # The variants of ImageNet are evaluated with the templates of ImageNet.
        return templates.IMAGENET_7 if name in IMAGENETS else [templates.dataset_template(name)]

    def _learners(self, classnames: Sequence[str]) -> list[Any]:
        pairs = zip(self.clip.each(), self.task.prompts, strict=True)
        return [prompt.learner(member, classnames) for member, prompt in pairs]

    @torch.no_grad()
    def _prompts_of(self, classnames: Sequence[str]) -> list[Prompt]:
        """Return the prompt of each model for some classes."""
        members = self.clip.each()
        if not self.task.prompts:
            return [member.encode_classes(classnames, self.templates) for member in members]
        return [
            learner if isinstance(learner, ConditionalPromptLearner) else member.encode_prompts(learner())
            for member, learner in zip(members, self._learners(classnames), strict=True)
        ]

    def protocol(self) -> dict[str, Any]:
        if not self.task.prompts:
            return {}
        kinds = []
        for learner in self._learners(self.classnames[:1]):
            shifted = ", shifted for each picture" if isinstance(learner, ConditionalPromptLearner) else ""
            kinds.append(f"{learner.n_ctx} learned vectors{shifted}")  # part of the fingerprint
        return {"prompts": kinds}

    def identity(self) -> dict[str, Any]:
        """Return a hash of the prompts, because the runs that PROMPTS names may change before a resume."""
        learners = self._learners(self.classnames[:1]) if self.task.prompts else []
        values = [parameter.tolist() for learner in learners for parameter in learner.parameters()]
        return {_CONTENT: digest(values)} if values else {}

    # ------------------------------------------------------------------ the mixture

    def mixture(self, features: Tensor, prompts: Sequence[Prompt]) -> Tensor:
        """Return the (B, C) log-probabilities of the mixture.

        Args:
            features: (B, sum of embeddings) features of all models side by side, not normalised.
            prompts: The prompt of each model.
        """
        logits = [
            _logits(member, F.normalize(part, dim=-1), prompt)
            for member, part, prompt in zip(self.clip.each(), features.split(self.sizes, dim=-1), prompts, strict=True)
        ]
        return mix_probabilities(self.generator(features), torch.stack(logits))

    def loss(self, inputs: Tensor, labels: Tensor, training: Collection[str] = ()) -> Losses:
        mixture = self.mixture(inputs, self.prompts)
        return Losses(mixture_loss(self.settings.LOSS, mixture, labels, len(self.sizes)), mixture)

    def classifier(self, classnames: Sequence[str] | None = None, synsets: Sequence[str] = ()) -> Classifier:
        """Return the classifier, whose logits are the log-probabilities of the mixture."""
        names = self.classnames if classnames is None else list(classnames)
        prompts = self.prompts if names == self.classnames else self._prompts_of(names)
        reason = f"it uses {len(self.sizes)} CLIP models with other weights for every image"
        return Classifier(names, lambda features: self.mixture(features, prompts), self.encode, reason)


def _read_prompts(clip: AnyCLIP, folders: Sequence[str], dataset: CfgNode) -> tuple[TrainedPrompt, ...]:
    """Return the prompts of the runs that PROMPTS names."""
    members = clip.each()
    if len(folders) == 1:  # one run has a prompt for each of its models
        numbered = enumerate(members)
        return tuple(read_prompt(each, folders[0], clip.weights_hash, number, dataset) for number, each in numbered)
    pairs = zip(members, folders, strict=True) if folders else ()
    return tuple(read_prompt(each, folder, each.weights_hash, dataset=dataset) for each, folder in pairs)


@torch.no_grad()
def _logits(clip: FrozenCLIP, features: Tensor, prompt: Prompt) -> Tensor:
    """Return the (B, C) logits of one model."""
    if isinstance(prompt, Tensor):
        return clip.logit_scale * features @ prompt.t()
    return clip.logit_scale * torch.einsum("bd,bcd->bc", features, clip.encode_prompts(prompt(features)))


@register(TRAINER_REGISTRY)
class TuneEn(CLIPTrainer):
    """Trains `TuneEnModel`."""

    Model = TuneEnModel
