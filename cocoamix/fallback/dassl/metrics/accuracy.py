"""Accuracy."""

from __future__ import annotations

import torch


def compute_accuracy(output: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
    """Return a list of one tensor of shape [1]: the top-1 accuracy of a batch, in percent.

    `output`: logits [batch, classes]; `target`: labels [batch]. A list, as in Dassl, which supports several ranks.
    """
    best = output.topk(1, dim=1).indices[:, 0]
    return [100.0 * (best == target).float().mean().reshape(1)]
