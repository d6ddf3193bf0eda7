"""An ensemble of models whose weights are generated for each sample (T_En)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from cocoamix.seeding import seeded


def make_generator(channels: int, models: int, downscale: int = 32, seed: int = 0) -> nn.Sequential:
    """Return the network from the features of all models, laid end to end, to one number for each model."""
    hidden = max(1, channels // downscale)
    with seeded(seed):
        return nn.Sequential(nn.Linear(channels, hidden), nn.ReLU(), nn.Linear(hidden, models))


def mix_probabilities(scores: Tensor, logits: Tensor) -> Tensor:
    """Return the log of the mixture, (B, C): sum over the models of softmax(scores) x softmax(logits).

    scores: (B, K) of the models. logits: (K, B, C) of each model.
    """
    weights = F.log_softmax(scores.float(), dim=-1).t()[:, :, None]
    return (weights + F.log_softmax(logits.float(), dim=-1)).logsumexp(dim=0)


def mixture_loss(name: str, mixture: Tensor, labels: Tensor, models: int) -> Tensor:
    """Return the loss of a mixture, given by its log (B, C).

    ce: the original's. Its output is the mean over the models, which divides the mixture by their number, and that
        goes into cross-entropy as if it were logits: a second softmax, which leaves small gradients.
    nll: the negative log-likelihood of the mixture.
    """
    return F.cross_entropy(mixture.exp() / models, labels) if name == "ce" else F.nll_loss(mixture, labels)
