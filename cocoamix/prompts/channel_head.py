"""Channel-wise affine maps of the features and a linear classifier of the training classes (DePT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cocoamix.seeding import seeded


class ChannelAffine(nn.Module):
    """x -> scale * x + shift per channel, initially the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return the mapped features."""
        return self.scale * x + self.shift


class ChannelHead(nn.Module):
    """One linear classifier for image and text features, with a separate affine map for each.

    The features are the encoders' outputs before normalisation.
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
        """Return the (2 B, classes) logits of (B, channels) text features and (B, channels) image features."""
        logits: Tensor = self.head(torch.cat([self.text(texts), self.image(images)]))
        return logits

    def resize(self, classes: int) -> None:
        """Resize the classifier to `classes` outputs, before a checkpoint is loaded into it."""
        if classes != self.head.out_features:
            self.head = nn.Linear(self.head.in_features, classes, device=self.head.weight.device)
