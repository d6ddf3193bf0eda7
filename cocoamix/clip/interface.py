"""The interface of a frozen CLIP for trainers: one model, or several used as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from .backbones import Sizes
from .model import FrozenCLIP
from .packing import Prompts


class AnyCLIP(Protocol):
    """One model, or several whose similarities are averaged."""

    name: str
    source: str
    precision: str
    activation: str
    weights_hash: str
    logit_scale: float
    sizes: Sizes

    def each(self) -> list[FrozenCLIP]:
        """Return the models."""

    def encode_image(self, images: Tensor) -> Tensor:
        """Encode (B, 3, H, W) images as (B, embedding) unit vectors."""

    def encode_image_raw(self, images: Tensor) -> Tensor:
        """Encode images as features that are not normalised."""

    def encode_classes(self, classnames: Sequence[str], templates: Sequence[str]) -> Tensor:
        """Return one (C, embedding) unit vector per class: the re-normalised mean over the templates."""

    def encode_each(self, prompts: Sequence[Prompts]) -> Tensor:
        """Encode the prompts of each model as (N, embedding) unit vectors. Keeps gradients."""
