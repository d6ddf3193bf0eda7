"""An ensemble of models whose weights a network generates for each sample (T_En)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from cocoamix.seeding import seeded


def make_generator(channels: int, models: int, downscale: int = 32, seed: int = 0) -> nn.Sequential:
    """Return the network that maps the concatenated features of all models to one score per model."""
    hidden = max(1, channels // downscale)
    with seeded(seed):
        return nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, models))


def mix_probabilities(scores: Tensor, logits: Tensor) -> Tensor:
    """Return the (B, C) log-probabilities of the mixture, the sum over models of softmax(scores) x softmax(logits).

    Args:
        scores: (B, K) scores of the models.
        logits: (K, B, C) logits of each model.
    """
    weights = F.log_softmax(scores.float(), dim=-1).t()[:, :, None]
    return (weights + F.log_softmax(logits.float(), dim=-1)).logsumexp(dim=0)


def mixture_loss(name: str, mixture: Tensor, labels: Tensor, models: int) -> Tensor:
    """Return the loss of a mixture.

    `nll` is the negative log-likelihood. `ce` is the loss of the original code: it passes the mixture divided by the
    number of models to cross-entropy as if it were logits, a second softmax that leaves small gradients.

    Args:
        name: `ce` or `nll`.
        mixture: (B, C) log-probabilities.
        labels: (B,) labels.
        models: Number of models.
    """
    return F.cross_entropy(mixture.exp() / models, labels) if name == "ce" else F.nll_loss(mixture, labels)
