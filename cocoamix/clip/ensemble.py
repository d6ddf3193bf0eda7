"""Several frozen CLIPs used as one, with the mean of their similarities.

Their unit vectors are concatenated and divided by the square root of their number. The product of an image feature and
a text feature is then the mean of the similarities, so everything else works as with one model.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .model import FrozenCLIP
from .packing import Prompts


class SeveralCLIPs(nn.Module):
    """Several frozen models used as one. The logit scale is that of the first."""

    def __init__(self, members: Sequence[FrozenCLIP]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        first = members[0]
        self.name = "+".join(one.name for one in members)
        self.source, self.precision, self.activation = first.source, first.precision, first.activation
        self.sizes, self.logit_scale = first.sizes, first.logit_scale
        hashes = "".join(one.weights_hash for one in members)
        self.weights_hash = first.weights_hash if len(members) == 1 else hashlib.sha256(hashes.encode()).hexdigest()

    def encode_image(self, images: Tensor) -> Tensor:
        """Encode (B, 3, H, W) images as (B, sum of embeddings) unit vectors."""
        return join([one.encode_image(images) for one in self.each()])

    def encode_image_raw(self, images: Tensor) -> Tensor:
        """Encode images as (B, sum of embeddings): the concatenated features of the members, not normalised."""
        return torch.cat([one.encode_image_raw(images) for one in self.each()], dim=-1)

    def encode_classes(self, classnames: Sequence[str], templates: Sequence[str]) -> Tensor:
        """Return one (C, sum of embeddings) unit vector per class."""
        return join([one.encode_classes(classnames, templates) for one in self.each()])

    def encode_each(self, prompts: Sequence[Prompts]) -> Tensor:
        """Encode the prompts of each member; see `FrozenCLIP.encode_prompts`."""
        return join([one.encode_prompts(each) for one, each in zip(self.each(), prompts, strict=True)])

    def each(self) -> list[FrozenCLIP]:
        """Return the members."""
        return [one for one in self.members if isinstance(one, FrozenCLIP)]


def join(features: Sequence[Tensor]) -> Tensor:
    """Concatenate unit vectors into one unit vector."""
    return features[0] if len(features) == 1 else torch.cat(list(features), dim=-1) / math.sqrt(len(features))
