"""T_En, tuning ensemble (Lu et al., ICML 2024): several frozen models, weighted per sample by a small network."""

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
Prompt = Tensor | ConditionalPromptLearner  # (C, embedding) text features, or a learner that computes them per image

_CONTENT = "content of TRAINER.ENLEARN.PROMPTS"


@register(TRAINER_REGISTRY)
class TuneEn(CLIPTrainer):
    """Trains the weight generator only. The prompts are hand-crafted or come from other runs."""

    section = "ENLEARN"
    raw_images = True
    prompts_hash = ""  # of the prompts from the runs that PROMPTS names

    def check_cfg(self, cfg: CfgNode) -> None:
        keys.check_common(cfg)
        keys.check_enlearn(cfg.TRAINER.ENLEARN)

    def load_backbone(self) -> AnyCLIP:
        return load_several(self.cfg, self.settings, self.device)

    def templates(self) -> Sequence[str]:
        if self.settings.PROMPTS:
            return []
        name = plain_name(self.cfg.DATASET.NAME)
        # The variants of ImageNet are evaluated with the templates of ImageNet.
        return templates.IMAGENET_7 if name in IMAGENETS else [templates.dataset_template(name)]

    def build_prompts(self) -> None:
        self.sizes = [clip.sizes.embedding for clip in self.clip.each()]
        seed = derive_seed(self.seed, "generator")
        generator = make_generator(sum(self.sizes), len(self.sizes), self.settings.DOWNSCALE, seed)
        self.generator = generator.to(self.device)
        self.register("learn_module", self.generator, self.cfg.OPTIM)
        self.load_prompts(self.settings.PROMPTS)

    @torch.no_grad()
    def load_prompts(self, folders: Sequence[str]) -> None:
        """Load the prompt of each model from the runs in `folders`; without folders, use the hand-crafted prompt."""
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
                kinds[-1] += ", shifted for each picture"  # part of the protocol's fingerprint
                self.prompts.append(learner)
            else:
                self.prompts.append(clip.encode_prompts(learner()))
        self.prompts_hash = digest(values)
        self.protocol.update(templates=[], prompts=kinds)

    def training_settings(self) -> dict[str, Any]:
        """Add a hash of the prompts, because the runs that PROMPTS names may change before a resume."""
        content = {_CONTENT: self.prompts_hash} if self.prompts_hash else {}
        return {**super().training_settings(), **content}

    def adopt_settings(self, settings: Mapping[str, Any]) -> None:
        """Use the prompts of the training run, unless the configuration names others."""
        folders = settings.get("TRAINER.ENLEARN.PROMPTS") or []
        if folders and not self.settings.PROMPTS:
            print(f"PROMPTS is {folders!r} as in training")
            self.load_prompts(folders)
        if settings and settings.get(_CONTENT, self.prompts_hash if folders else "") != self.prompts_hash:
            print(f"Note: these are not the prompts of training, which came from {folders or 'the template'}")

    def chosen_in_evaluation(self) -> set[str]:
        return {"TRAINER.ENLEARN.PROMPTS"} if self.settings.PROMPTS else set()

    # ------------------------------------------------------------------ the mixture

    def mixture(self, features: Tensor) -> Tensor:
        """Return the (B, C) log-probabilities of the mixture.

        `features` are (B, sum of embeddings), those of all models side by side and not normalised.
        """
        parts = features.split(self.sizes, dim=-1)
        logits = [
            _logits(clip, F.normalize(part, dim=-1), prompt)
            for clip, part, prompt in zip(self.clip.each(), parts, self.prompts, strict=True)
        ]
        return mix_probabilities(self.generator(features), torch.stack(logits))

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        mixture = self.mixture(image_features)
        return {"loss": mixture_loss(self.settings.LOSS, mixture, labels, len(self.sizes))}, mixture

    def before_test(self) -> None:
        """Prepare nothing: the prompts do not change."""

    def class_logits(self, image_features: Tensor) -> Tensor:
        """Return the log-probabilities of the mixture."""
        return self.mixture(image_features)


@torch.no_grad()
def _logits(clip: FrozenCLIP, features: Tensor, prompt: Prompt) -> Tensor:
    """Return the (B, C) logits of one model."""
    if isinstance(prompt, Tensor):
        return clip.logit_scale * features @ prompt.t()
    return clip.logit_scale * torch.einsum("bd,bcd->bc", features, clip.encode_prompts(prompt(features)))
