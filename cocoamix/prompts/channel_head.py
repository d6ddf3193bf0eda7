"""A second view of the features, channel by channel, with a linear classifier of the training classes (DePT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cocoamix.seeding import seeded


class ChannelAffine(nn.Module):
    """x -> scale * x + shift, each channel by itself. It starts as the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x + self.shift


class ChannelHead(nn.Module):
    """One linear classifier for image and for text features, each through an affine map of its own.

    Features are those of the towers, not normalised.
    """

    def __init__(self, channels: int, classes: int, seed: int = 0) -> None:
        super().__init__()
        self.image, self.text = ChannelAffine(channels), ChannelAffine(channels)
        with seeded(seed):
            self.head = nn.Linear(channels, classes)

    def of_images(self, features: Tensor) -> Tensor:
        """Return the (B, classes) logits of (B, channels) image features."""
        logits: Tensor = self.head(self.image(features))
        return logits

    def of_pairs(self, texts: Tensor, images: Tensor) -> Tensor:
        """Return the (2 B, classes) logits of (B, channels) text features and of as many image features."""
        logits: Tensor = self.head(torch.cat([self.text(texts), self.image(images)]))
        return logits

    def resize(self, classes: int) -> None:
        """Make room for the classifier of another number of classes, which is about to be loaded."""
        if classes != self.head.out_features:
            self.head = nn.Linear(self.head.in_features, classes, device=self.head.weight.device)
