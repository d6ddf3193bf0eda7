"""DePT, decoupled prompt tuning (Zhang et al., CVPR 2024): a separate head learns what is specific to base classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor

from cocoamix.clip.class_names import find_rows, synsets_of
from cocoamix.prompts.channel_head import ChannelHead
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from .coop import CoOp
from .kgcoop import guided_terms

HEAD = "channel_head"


@register(TRAINER_REGISTRY)
class DePT(CoOp):
    """DePT on CoOp: (1 - WEIGHT) x CoOp's loss + WEIGHT x cross-entropy of the head on image and text features."""

    section = "DEPT"
    folder = "PromptLearner"
    raw_images = True
    _rows: Tensor | None = None  # rows of the head for the classes of the current evaluation
    _loaded = False  # whether the head comes from a checkpoint

    def build_prompts(self) -> None:
        super().build_prompts()
        seed = derive_seed(self.seed, "head")
        self.head = ChannelHead(self.clip.sizes.embedding, self.num_classes, seed).to(self.device)
        optim = self.cfg.OPTIM.clone()
        optim.defrost()
        optim.LR *= self.settings.LR_FACTOR
        self.register(HEAD, self.head, optim)

    def text_features(self) -> Tensor:
        self._raw_texts = self.clip.encode_prompts_raw(self.prompt_learner())
        return F.normalize(self._raw_texts, dim=-1)

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        weight = self.settings.WEIGHT
        terms, logits = self.base_loss(F.normalize(image_features, dim=-1), labels)
        both = self.head.of_pairs(self._raw_texts[labels], image_features)
        terms["base"], terms["head"] = terms["loss"], F.cross_entropy(both, labels.repeat(2))
        terms["loss"] = (1 - weight) * terms["base"] + weight * terms["head"]
        return terms, self.fuse(logits, both[len(labels) :])

    def base_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the loss and the logits of the underlying method on unit image features."""
        return super().compute_loss(image_features, labels)

    def fuse(self, logits: Tensor, head_logits: Tensor) -> Tensor:
        """Return the weighted sum of the prompt's and the head's logits."""
        return (1 - self.settings.WEIGHT) * logits + self.settings.WEIGHT * head_logits

    # ------------------------------------------------------------------ evaluation

    def describe_origin(self) -> dict[str, Any]:
        return {**super().describe_origin(), "synsets": self.synsets}

    @property
    def synsets(self) -> list[str]:
        """ImageNet's identifiers of the current classes; empty for other datasets."""
        return synsets_of(self.dm.dataset.train_x, self.num_classes)

    def resize_model(self, name: str, state: Mapping[str, Tensor]) -> None:
        if name == HEAD and "head.weight" in state:
            self.head.resize(len(state["head.weight"]))
            self._loaded = True

    def before_test(self) -> None:
        super().before_test()
        known = self.trained_classes
        synsets = self.loaded_from.get("synsets", []) if self.loaded_from else self.synsets
        # ImageNet-A and -R have 200 of ImageNet's classes.
        rows, unclear = find_rows(self.classnames, known, self.synsets, synsets)
        # Without a row of the head for every class, only similarities are used.
        reason = ""
        if not (self.trained_epochs or self._loaded):
            reason = "the head is not trained"
        elif len(known) != self.head.head.out_features:
            reason = f"the head has {self.head.head.out_features} classes with unknown names"
        elif unclear:
            reason = f"{', '.join(map(repr, unclear))} could be more than one of the trained classes"
        elif min(rows) < 0:
            reason = "the head was not trained on all classes"
        self._rows = None if reason else torch.tensor(rows, device=self.device)
        print(f"Logits: similarity {f'alone: {reason}' if reason else 'and head'}")

    def class_logits(self, image_features: Tensor) -> Tensor:
        logits = super().class_logits(F.normalize(image_features, dim=-1))
        if self._rows is None:
            return logits
        return self.fuse(logits, self.head.of_images(image_features)[:, self._rows])

    def mix_uniformly(self, image_features: Tensor, logits: Tensor) -> Tensor:
        return super().mix_uniformly(F.normalize(image_features, dim=-1), logits)


@register(TRAINER_REGISTRY)
class DePTKgCoOp(DePT):
    """DePT on KgCoOp, with the loss of KgCoOp in place of CoOp's."""

    templates_of = "KgCoOp"
    trains_with_template = True

    def base_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        text = self.text_features()
        logits = self.logits(image_features, text)
        return guided_terms(logits, labels, text, self.hand_crafted_features(), self.settings.W), logits
