"""T_En, tuning ensemble (Lu et al., ICML 2024): several frozen models, weighted for each sample by a small network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP, templates
from cocoamix.clip.interface import AnyCLIP
from cocoamix.config import keys
from cocoamix.prompts.conditional import ConditionalPromptLearner
from cocoamix.prompts.sample_weighting import make_generator, mix_probabilities, mixture_loss
from cocoamix.registry import plain_name, register
from cocoamix.run.backbone import load_several
from cocoamix.run.protocol import digest
from cocoamix.run.trained_prompt import read_prompt
from cocoamix.seeding import derive_seed

from .base import CLIPTrainer

IMAGENETS = ("ImageNet", "ImageNetV2", "ImageNetSketch", "ImageNetA", "ImageNetR")
Prompt = Tensor | ConditionalPromptLearner  # (C, embedding) text features, or what makes them for a picture


_CONTENT = "content of TRAINER.ENLEARN.PROMPTS"


@register(TRAINER_REGISTRY)
class TuneEn(CLIPTrainer):
    """The prompts are hand-crafted, or those that other runs have trained; the generator alone is trained here."""

    section = "ENLEARN"
    raw_images = True
    prompts_hash = ""  # of what the runs that PROMPTS names have trained

    def check_cfg(self, cfg: CfgNode) -> None:
        keys.check_common(cfg)
        keys.check_enlearn(cfg.TRAINER.ENLEARN)

    def load_backbone(self) -> AnyCLIP:
        return load_several(self.cfg, self.settings, self.device)

    def templates(self) -> Sequence[str]:
        if self.settings.PROMPTS:
            return []
        name = plain_name(self.cfg.DATASET.NAME)
        # The variants of ImageNet are evaluated with what ImageNet is trained with.
        return templates.IMAGENET_7 if name in IMAGENETS else [templates.dataset_template(name)]

    def build_prompts(self) -> None:
        self.sizes = [clip.sizes.embedding for clip in self.clip.each()]
        seed = derive_seed(self.seed, "generator")
        generator = make_generator(sum(self.sizes), len(self.sizes), self.settings.DOWNSCALE, seed)
        self.generator = generator.to(self.device)
        self.register("learn_module", self.generator, self.cfg.OPTIM)
        self.take_prompts(self.settings.PROMPTS)

    @torch.no_grad()
    def take_prompts(self, folders: Sequence[str]) -> None:
        """Take the prompt of each model: the hand-crafted one, or what the runs in `folders` have trained."""
        if not folders:
            self.prompts: list[Prompt] = [
                clip.encode_classes(self.classnames, self.templates()) for clip in self.clip.each()
            ]
            return
        self.prompts, kinds, values, data = [], [], [], self.cfg.DATASET
        for number, clip in enumerate(self.clip.each()):
            if len(folders) == 1:  # one run has a prompt for each of its models
                learner = read_prompt(clip, self.classnames, folders[0], self.clip.weights_hash, number, data)
            else:
                learner = read_prompt(clip, self.classnames, folders[number], clip.weights_hash, dataset=data)
            values += [parameter.tolist() for parameter in learner.parameters()]
            kinds.append(f"{learner.n_ctx} learned vectors")
            if isinstance(learner, ConditionalPromptLearner):
                kinds[-1] += ", shifted for each picture"
                self.prompts.append(learner)
            else:
                self.prompts.append(clip.encode_prompts(learner()))
        self.prompts_hash = digest(values)
        self.protocol.update(templates=[], prompts=kinds)

    def training_settings(self) -> dict[str, Any]:
        """The folders of PROMPTS may hold something else when a run is taken up again."""
        told = {_CONTENT: self.prompts_hash} if self.prompts_hash else {}
        return {**super().training_settings(), **told}

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Evaluate with the prompts of the training run, unless others are named."""
        folders = settings.get("TRAINER.ENLEARN.PROMPTS") or []
        if folders and not self.settings.PROMPTS:
            print(f"PROMPTS is {folders!r} as in training")
            self.take_prompts(folders)
        if settings and settings.get(_CONTENT, self.prompts_hash if folders else "") != self.prompts_hash:
            print(f"Note: the prompts are not those of training, which were of {folders or 'the template'}")

    def chosen_in_evaluation(self) -> set[str]:
        return {"TRAINER.ENLEARN.PROMPTS"} if self.settings.PROMPTS else set()

    # ------------------------------------------------------------------ the mixture

    def mixture(self, features: Tensor) -> Tensor:
        """Return the log (B, C) of the mixture, of (B, sum of embeddings) features that are not normalised."""
        own = features.split(self.sizes, dim=-1)
        logits = [
            _logits(clip, F.normalize(each, dim=-1), prompt)
            for clip, each, prompt in zip(self.clip.each(), own, self.prompts, strict=True)
        ]
        return mix_probabilities(self.generator(features), torch.stack(logits))

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        mixture = self.mixture(image_features)
        return {"loss": mixture_loss(self.settings.LOSS, mixture, labels, len(self.sizes))}, mixture

    def before_test(self) -> None:
        """The prompts stand still."""

    def class_logits(self, image_features: Tensor) -> Tensor:
        """Return the log-probabilities of the mixture."""
        return self.mixture(image_features)


@torch.no_grad()
def _logits(clip: FrozenCLIP, features: Tensor, prompt: Prompt) -> Tensor:
    """Return the (B, C) logits of one model."""
    if isinstance(prompt, Tensor):
        return clip.logit_scale * features @ prompt.t()
    return clip.logit_scale * torch.einsum("bd,bcd->bc", features, clip.encode_prompts(prompt(features)))
