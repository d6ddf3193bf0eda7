"""T_En, tuning ensemble (Lu et al., ICML 2024): several frozen models, weighted for each sample by a small network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix import checkpoints
from cocoamix.clip import FrozenCLIP, templates
from cocoamix.errors import UserError
from cocoamix.generator import make_generator, mix_probabilities, mixture_loss
from cocoamix.images import derive_seed
from cocoamix.prompts import PromptLearner
from cocoamix.registry import register

from . import config
from .base import CLIPTrainer
from .saving import checkpoint_path


@register(TRAINER_REGISTRY)
class TuneEn(CLIPTrainer):
    """The prompts are hand-crafted, or those that other runs have trained; the generator alone is trained here."""

    section = "ENLEARN"
    raw_images = True

    def check_cfg(self, cfg: CfgNode) -> None:
        config.check_common(cfg)
        config.check_enlearn(cfg.TRAINER.ENLEARN)

    def load_backbone(self) -> FrozenCLIP:
        return self.load_several()

    def templates(self) -> Sequence[str]:
        if self.settings.PROMPTS:
            return []
        name = self.cfg.DATASET.NAME
        return templates.IMAGENET_7 if name == "ImageNet" else [templates.dataset_template(name)]

    def build_prompts(self) -> None:
        self.sizes = [clip.sizes.embedding for clip in self.backbones]
        seed = derive_seed(self.seed, "generator")
        generator = make_generator(sum(self.sizes), len(self.sizes), self.settings.DOWNSCALE, seed)
        self.generator = generator.to(self.device)
        self.register("learn_module", self.generator, self.cfg.OPTIM)
        self.read_prompts(self.settings.PROMPTS)

    # ------------------------------------------------------------------ the prompts of the models

    @torch.no_grad()
    def read_prompts(self, folders: Sequence[str]) -> None:
        """Encode the prompt of each model: the hand-crafted one, or what the runs in `folders` have trained."""
        if not folders:
            self.texts = [clip.encode_classes(self.classnames, self.templates()) for clip in self.backbones]
            return
        learners = [self._read_prompt(folders, number) for number in range(len(self.backbones))]
        pairs = zip(self.backbones, learners, strict=True)
        self.texts = [clip.encode_prompts(learner()) for clip, learner in pairs]
        self.protocol["templates"] = []
        self.protocol["prompts"] = [f"{learner.n_ctx} learned vectors" for learner in learners]

    def _read_prompt(self, folders: Sequence[str], number: int) -> PromptLearner:
        clip = self.backbones[number]
        path = checkpoint_path(Path(folders[number % len(folders)], "prompt_learner"), None)
        content = checkpoints.load(path)
        state = checkpoints.weights_of(content, path)
        several = len(folders) == 1
        if several:  # one run has a prompt for each of its models
            state = {key.split(".", 1)[1]: value for key, value in state.items() if key.startswith(f"{number}.")}
        context, origin = state.get("ctx"), content.get("cocoamix") or {}
        wanted = self.clip.weights_hash if several else clip.weights_hash
        if context is None or context.dim() != 2 or origin.get("weights_sha256", wanted) != wanted:
            raise UserError(
                f"TRAINER.ENLEARN.PROMPTS names {path}, which holds no context for all classes of {clip.name} "
                "with the weights of this run. Name a run of CoOp, CoCoOp or CoCoAMix for each of BACKBONES, in order."
            )
        position = _setting(origin, "CLASS_TOKEN_POSITION", "end")
        learner = PromptLearner(clip, self.classnames, n_ctx=len(context), position=position)
        checkpoints.load_into(learner, state, str(path))
        print(f'Prompt of {clip.name} from "{path}"')
        return learner

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Evaluate with the prompts of the training run, unless others are named."""
        folders = settings.get("TRAINER.ENLEARN.PROMPTS") or []
        if folders and not self.settings.PROMPTS:
            self.read_prompts(folders)

    # ------------------------------------------------------------------ the mixture

    def mixture(self, features: Tensor) -> Tensor:
        """Return the log (B, C) of the mixture, of (B, sum of embeddings) features that are not normalised."""
        logits = [
            clip.logit_scale * F.normalize(own, dim=-1) @ text.t()
            for clip, own, text in zip(self.backbones, features.split(self.sizes, dim=-1), self.texts, strict=True)
        ]
        return mix_probabilities(self.generator(features), torch.stack(logits))

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        mixture = self.mixture(image_features)
        return {"loss": mixture_loss(self.settings.LOSS, mixture, labels, len(self.sizes))}, mixture

    def before_test(self) -> None:
        """The text features stand still."""

    def class_logits(self, image_features: Tensor) -> Tensor:
        """Return the log-probabilities of the mixture."""
        return self.mixture(image_features)


def _setting(origin: Mapping[str, Any], key: str, default: str) -> str:
    """Return a setting of the trainer that a checkpoint comes from."""
    settings = origin.get("settings") or {}
    return next((str(value) for name, value in settings.items() if name.endswith(f".{key}")), default)
