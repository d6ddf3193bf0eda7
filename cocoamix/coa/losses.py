"""Losses of a prompt: CoA-loss (Section 3.3) and the losses it is compared with (Appendix E.3).

All are computed in fp32 from log-softmax and averaged over the batch.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.choices import LOSSES
from cocoamix.errors import check_choice

Terms = dict[str, Tensor]


def log_probability(logits: Tensor, labels: Tensor) -> Tensor:
    """Return (B,) log p(y) of (B, C) logits, in fp32."""
    return -F.cross_entropy(logits.float(), labels, reduction="none")


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """L_CE = -log p(y), Eq. (8)."""
    return -log_probability(logits, labels).mean()


def coa(logits: Tensor, labels: Tensor) -> Tensor:
    """L_CoA = 1 - p(y), Eq. (9). Its gradient is largest for confused classes, near p(y) = 1/2 (Eq. 11)."""
    return -torch.expm1(log_probability(logits, labels)).mean()


def focal(logits: Tensor, labels: Tensor, gamma: float) -> Tensor:
    """Focal loss, -(1 - p(y))^gamma log p(y), Eq. (16)."""
    log_p = log_probability(logits, labels)
    error = (-torch.expm1(log_p)).clamp_min(torch.finfo(torch.float32).tiny)  # error**gamma may lack a slope at 0
    return -(error**gamma * log_p).mean()


def gce(logits: Tensor, labels: Tensor, q: float) -> Tensor:
    """Generalised cross-entropy, (1 - p(y)^q) / q, Eq. (17): cross-entropy as q goes to 0, CoA-loss at q = 1."""
    return -(torch.expm1(q * log_probability(logits, labels)) / q).mean()


def mae(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the classes of the absolute error |1[c = y] - p(c)|, Eq. (20), which equals 2 (1 - p(y)) / C."""
    return 2 * coa(logits, labels) / logits.shape[1]


def make_loss(
    name: str, weight: float = 5.0, gamma: float = 2.0, q: float = 0.7
) -> Callable[[Tensor, Tensor], tuple[Tensor, Terms]]:
    """Return the loss that `LOSS` names: a function of (logits, labels) that returns it and its unweighted terms.

    `ce+coa` is L_prompt = L_CE + w L_CoA, Eq. (10).

    Args:
        name: One of `cocoamix.choices.LOSSES`.
        weight: Weight w of the second term of `ce+coa` and `ce+mae`.
        gamma: Exponent of `focal`.
        q: Exponent of `gce`.
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
