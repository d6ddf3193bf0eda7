"""A hand-crafted prompt beside the learned one: a teacher in training, or half of a uniform ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import templates

from . import config
from .base import CLIPTrainer


class HandmadeTrainer(CLIPTrainer):
    """Reads TEMPLATE and ENSEMBLE of its section."""

    ensembles: tuple[str, ...] = ("none", "uniform")
    templates_of = ""  # the method whose templates for the datasets it takes; by default CoOp's
    trains_with_template = False  # True where the loss needs the hand-crafted prompt, not the evaluation alone
    followed_keys: tuple[str, ...] = ()  # settings of training that hold in an evaluation
    followed: CfgNode | None = None  # the settings of the run that a loaded checkpoint comes from
    handmade: Tensor

    @property
    def settings(self) -> CfgNode:
        return self.followed or super().settings

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        config.check_handmade(self.section, cfg.TRAINER[self.section], self.ensembles)

    def templates(self) -> Sequence[str]:
        if not self.trains_with_template and self.settings.ENSEMBLE == "none":
            return []
        given = self.settings.TEMPLATE
        own = templates.dataset_template(self.cfg.DATASET.NAME, self.templates_of)
        return [own if one == "dataset" else one for one in ([given] if isinstance(given, str) else given)]

    def encode_handmade(self) -> None:
        """Compute the (C, embedding) features of the hand-crafted prompt, if it is needed."""
        if self.templates():
            self.handmade = self.clip.encode_classes(self.classnames, self.templates())

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Evaluate with the settings that the checkpoint was trained with, where they matter."""
        node = self.settings.clone()
        node.defrost()
        for key in self.followed_keys:
            told = settings.get(f"TRAINER.{self.section}.{key}", node[key])
            if told != node[key]:
                print(f"{key} is {told!r} as in training; the configuration's {node[key]!r} is not used")
                node[key] = told
        if node != self.settings:
            self.followed = node
            self.encode_handmade()
            self.protocol["templates"] = list(self.templates())

    def model_inference(self, inputs: Tensor) -> Tensor:
        features = self.encode(inputs)
        logits = self.class_logits(features)
        return self.mix_uniformly(features, logits) if self.settings.ENSEMBLE == "uniform" else logits

    def mix_uniformly(self, image_features: Tensor, logits: Tensor) -> Tensor:
        """Return the (B, C) logits of the mean of the learned and the hand-crafted prompt's similarities."""
        return (logits + self.logits(image_features, self.handmade)) / 2
