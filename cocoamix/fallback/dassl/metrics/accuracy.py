"""Top-k accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def compute_accuracy(
    output: torch.Tensor | Sequence[torch.Tensor], target: torch.Tensor, topk: Sequence[int] = (1,)
) -> list[torch.Tensor]:
    """Return the top-k accuracy in percent for each k, each of shape [1].

    `output`: logits [batch, classes], or a tuple that starts with them; `target`: labels [batch].
    """
    logits = output if isinstance(output, torch.Tensor) else output[0]
    ranked = logits.topk(max(topk), dim=1).indices
    hits = (ranked == target.reshape(-1, 1)).float()
    return [100.0 * hits[:, :k].sum(dim=1).mean().reshape(1) for k in topk]
