"""DePT, decoupled prompt tuning (Zhang et al., CVPR 2024): a separate head learns what is specific to base classes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.class_names import find_rows
from cocoamix.model import RAW_FEATURES, Classifier, Losses, Matrices, Phase, Task
from cocoamix.prompts.channel_head import ChannelHead
from cocoamix.registry import register
from cocoamix.seeding import derive_seed
from cocoamix.trainer import CLIPTrainer

from .coop import CoOpModel
from .kgcoop import KgCoOpModel

HEAD = "channel_head"


class DePTModel(CoOpModel):
    """DePT on CoOp: (1 - WEIGHT) x CoOp's loss + WEIGHT x cross-entropy of the head on image and text features."""

    section = "DEPT"
    folder = "PromptLearner"
    reads = RAW_FEATURES

    def __init__(self, clip: FrozenCLIP, task: Task, settings: CfgNode, seed: int) -> None:
        super().__init__(clip, task, settings, seed)
        self.synsets = list(task.synsets)
        head = ChannelHead(clip.sizes.embedding, len(task.classnames), derive_seed(seed, "head"))
        self.head = self.parts[HEAD] = head.to(clip.device)

    def phases(self, optim: CfgNode, steps: int) -> list[Phase]:
        faster = optim.clone()
        faster.defrost()
        faster.LR *= self.settings.LR_FACTOR
        return [Phase("train", optim.MAX_EPOCH, {self.folder: optim, HEAD: faster})]

    def loss(self, inputs: Tensor, labels: Tensor, training: Collection[str] = ()) -> Losses:
        weight = self.settings.WEIGHT
        texts = self.clip.encode_prompts_raw(self.learner())
        losses = self.text_loss(F.normalize(inputs, dim=-1), F.normalize(texts, dim=-1), labels)
        both = self.head.of_pairs(texts[labels], inputs)
        terms = {**losses.terms, "base": losses.total, "head": F.cross_entropy(both, labels.repeat(2))}
        total = (1 - weight) * terms["base"] + weight * terms["head"]
        return Losses(total, self.fuse(losses.logits, both[len(labels) :]), terms)

    def fuse(self, logits: Tensor, head_logits: Tensor) -> Tensor:
        """Return the weighted sum of the prompt's and the head's logits."""
        return (1 - self.settings.WEIGHT) * logits + self.settings.WEIGHT * head_logits

    # ------------------------------------------------------------------ evaluation

    def facts(self) -> dict[str, Any]:
        return {"synsets": self.synsets}

    def adopt(self, facts: Mapping[str, Any]) -> None:
        self.synsets = list(facts.get("synsets", []))

    def resize(self, name: str, state: Mapping[str, Tensor]) -> None:
        if name == HEAD and "head.weight" in state:
            self.head.resize(len(state["head.weight"]))

    def _rows(self, names: Sequence[str], synsets: Sequence[str]) -> tuple[list[int], str]:
        """Return the rows of the head for some classes, or why only similarities can be used."""
        known = self.classnames
        # ImageNet-A and -R have 200 of ImageNet's classes.
        rows, unclear = find_rows(names, known, synsets, self.synsets)
        if len(known) != self.head.head.out_features:
            return [], f"the head has {self.head.head.out_features} classes with unknown names"
        if unclear:
            return [], f"{', '.join(map(repr, unclear))} could be more than one of the trained classes"
        return (rows, "") if min(rows) >= 0 else ([], "the head was not trained on all classes")

    @torch.no_grad()
    def classifier(self, classnames: Sequence[str] | None = None, synsets: Sequence[str] = ()) -> Classifier:
        names = self.classnames if classnames is None else list(classnames)
        text = self.clip.encode_prompts(self.learner_of(names)())
        rows, reason = self._rows(names, synsets or (self.synsets if classnames is None else ()))
        matrices = Matrices(self.clip.logit_scale * text)
        chosen = torch.tensor(rows, device=text.device)

        def logits(features: Tensor) -> Tensor:
            similarity = self.logits(F.normalize(features, dim=-1), text)
            return self.fuse(similarity, self.head.of_images(features)[:, chosen]) if rows else similarity

        if rows:
            weight, head, image = self.settings.WEIGHT, self.head.head, self.head.image
            raw, bias = head.weight[chosen] * image.scale, head.weight[chosen] @ image.shift + head.bias[chosen]
            matrices = Matrices((1 - weight) * matrices.unit, weight * raw, weight * bias)
        notes = [f"Logits: similarity {f'alone: {reason}' if reason else 'and head'}"]
        return self.mixed(names, logits, matrices, notes=notes)


class DePTKgCoOpModel(DePTModel, KgCoOpModel):
    """DePT on KgCoOp, with the loss of KgCoOp in place of CoOp's."""


@register(TRAINER_REGISTRY)
class DePT(CLIPTrainer):
    """Trains `DePTModel`."""

    Model = DePTModel


@register(TRAINER_REGISTRY)
class DePTKgCoOp(CLIPTrainer):
    """Trains `DePTKgCoOpModel`."""

    Model = DePTKgCoOpModel
