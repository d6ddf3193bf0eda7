"""Losses of a prompt: cross-entropy, CoA-loss and those it is compared with. All in fp32, from log-softmax."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.choices import LOSSES
from cocoamix.errors import check_choice

Terms = dict[str, Tensor]


def log_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """Return log p(y) of each row of (B, C) logits, in fp32."""
    return -F.cross_entropy(logits.float(), labels, reduction="none")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """-log p(y)."""
    return -log_probability(logits, labels).mean()


def coa(logits: Tensor, labels: Tensor) -> Tensor:
    """CoA-loss, 1 - p(y): its gradient is largest where the classes are confused, near p(y) = 1/2."""
    return -torch.expm1(log_probability(logits, labels)).mean()


def focal(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """-(1 - p(y))^gamma log p(y)."""
    log_p = log_probability(logits, labels)
    wrong = (-torch.expm1(log_p)).clamp_min(torch.finfo(torch.float32).tiny)  # its power has no slope at 0
    return -(wrong**gamma * log_p).mean()


def gce(logits: Tensor, labels: Tensor, q: float) -> Tensor:
    """Generalised cross-entropy, (1 - p(y)^q) / q: cross-entropy as q goes to 0, CoA-loss at q = 1."""
    return -(torch.expm1(q * log_probability(logits, labels)) / q).mean()


def mae(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the classes of |1[l = y] - p(l)|, which is 2 (1 - p(y)) / C."""
    return 2 * coa(logits, labels) / logits.shape[1]


def make_loss(
    name: str, weight: float = 5.0, gamma: float = 2.0, q: float = 0.7
) -> Callable[[Tensor, Tensor], tuple[Tensor, Terms]]:
    """Return a function of (logits, labels) that gives the loss of that name and its terms, unweighted.

    weight: of the second term of `ce+coa` (the paper's w) and of `ce+mae`.
    """
    check_choice("LOSS", name, LOSSES)
    parts: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "ce": cross_entropy,
        "coa": coa,
        "mae": mae,
        "focal": lambda logits, labels: focal(logits, labels, gamma),
        "gce": lambda logits, labels: gce(logits, labels, q),
    }
    names = name.split("+")

    def loss(logits: Tensor, labels: Tensor) -> tuple[Tensor, Terms]:
        terms = {part: parts[part](logits, labels) for part in names}
        first, *rest = terms.values()
        return first + weight * sum(rest) if rest else first, terms

    return loss
