"""The mixture model in one evaluation: the weights of each class, centring, and the scale of the logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .mixture import all_columns_equal, mix_text
from .weights import CoAWeights


class MixtureHead:
    """Mixes the similarities of the hand-crafted and the learned prompts in one label space.

    Args:
        weights: The CoA-weights.
        owner: (C,) number of the prompt trained on each class, 0 for an out-class.
        centre: Centre the similarities if classes have different weights.
        temperature: Temperature of the mixture, instead of CLIP's or the learned one.
    """

    def __init__(self, weights: CoAWeights, owner: Tensor, centre: bool, temperature: float | None = None) -> None:
        self.weights, self.owner = weights, owner
        self.mixed = bool((owner != owner[0]).any())
        self.pi = weights.pi(owner)
        self.centred = centre and not all_columns_equal(self.pi)
        self.calibrated = temperature is not None
        self._factor = 1.0 if temperature is None else 1 / (temperature * weights.logit_scale)

    def logits(self, *similarities: Tensor) -> Tensor:
        """Return the (B, C) logits for (B, C) similarities of each prompt, the hand-crafted one first."""
        logits = self.weights.logits(torch.stack(similarities), self.owner, self.mixed, self.centred)
        return logits if self._factor == 1 else logits * self._factor

    def matrix(self, text: Tensor) -> Tensor:
        """Return the (C, D) class vectors whose products with unit image features are the logits.

        Args:
            text: (K + 1, C, D) text features of each prompt.
        """
        scale = self.weights.scale(self.pi, self.mixed) * self._factor
        return mix_text(text, self.pi, self.centred) * scale

    def facts(self) -> dict[str, Any]:
        """Return what the protocol of the evaluation states."""
        return {key: True for key, holds in (("calibrated", self.calibrated), ("centred", self.centred)) if holds}

    def notes(self) -> list[str]:
        """Return sentences for the log."""
        low, high = (float(value) for value in self.pi[1].aminmax())
        centred = ["Similarities are centred over the classes (CENTRE)"] if self.centred else []
        return [f"Weight of the learned prompt: {low:.4f} to {high:.4f} over the classes", *centred]
