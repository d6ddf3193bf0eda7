"""Several frozen CLIPs as one: the similarity is the mean of theirs.

Their unit vectors are laid end to end and divided by the root of their number, so that the product of a picture's and a
text's is the mean of the similarities, and everything else works as with one model.
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
    """A list of frozen models that is used as one. The logit scale is the first one's."""

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
        """Encode (B, 3, H, W) pictures as (B, sum of embeddings) unit vectors."""
        return join([one.encode_image(images) for one in self.each()])

    def encode_image_raw(self, images: Tensor) -> Tensor:
        """Encode pictures as (B, sum of embeddings): the features of the members, laid end to end as they are."""
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
    """Lay unit vectors end to end as one unit vector."""
    return features[0] if len(features) == 1 else torch.cat(list(features), dim=-1) / math.sqrt(len(features))
