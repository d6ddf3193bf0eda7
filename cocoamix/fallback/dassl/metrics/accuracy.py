"""Accuracy."""

from __future__ import annotations

import torch


def compute_accuracy(output: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    """Return the top-1 accuracy of a batch in percent, as a list of one tensor of shape [1].

    It is a list as in Dassl, which can also return the accuracy for several ranks.

    Args:
        output: Logits [batch, classes].
        target: Labels [batch].
    """
    best = output.topk(1, dim=1).indices[:, 0]
    return [100.0 * (best == target).float().mean().reshape(1)]
