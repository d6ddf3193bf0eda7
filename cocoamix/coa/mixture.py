"""The mixture of prompts: one matrix of weights describes every label space.

A class belongs to the prompt that was trained on it, or to none. `owner` (C,) holds for each class the number 1..K of
its prompt, or 0 for none; prompt 0 is the hand-crafted one and owns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cocoamix.choices import MIXTURES
from cocoamix.clip.class_names import plain_class
from cocoamix.errors import check_choice


def find_owners(classnames: Sequence[str], domains: Sequence[Sequence[str]]) -> Tensor:
    """Return the owner of each class: i + 1 where its name is in `domains[i]`, the latest if several, else 0."""
    owner = {plain_class(name): number for number, names in enumerate(domains, 1) for name in names}
    return torch.tensor([owner.get(plain_class(name), 0) for name in classnames])


def class_logits(inside: Tensor, outside: Tensor, owner: Tensor) -> Tensor:
    """Return the (K + 1, C) log-weights of the prompts, up to a constant per class.

    inside, outside: (K,) log-weight of each learned prompt relative to prompt 0, for its own classes and for others.
    """
    prompts = torch.arange(1, len(inside) + 1, device=owner.device)
    learned = torch.where(owner[None, :] == prompts[:, None], inside[:, None], outside[:, None])
    return torch.cat([learned.new_zeros(1, owner.shape[0]), learned])


def class_weights(inside: Tensor, outside: Tensor, owner: Tensor) -> Tensor:
    """Return the (K + 1, C) weights pi of the prompts for each class; every column sums to one."""
    return class_logits(inside, outside, owner).softmax(dim=0)


def weights_of_kind(kind: str, inside: Tensor, outside: Tensor, owner: Tensor) -> Tensor:
    """Return the (K + 1, C) weights of the prompts for each class; every column sums to one.

    kind: `coa` from the learned log-weights, `uniform` the same for every prompt, `none` a class's own prompt alone.
    inside, outside: (K,) log-weights relative to prompt 0.
    owner: (C,) number 1..K of each class's prompt.
    """
    check_choice("ENSEMBLE", kind, MIXTURES)
    if kind == "coa":
        return class_weights(inside, outside, owner)
    prompts = torch.arange(len(inside) + 1, device=owner.device)
    if kind == "uniform":
        return torch.full((len(prompts), len(owner)), 1 / len(prompts), device=owner.device)
    return (prompts[:, None] == owner[None, :]).float()


def share_one_pi(weights: Tensor) -> bool:
    """Say whether all classes have the same (K + 1, C) weights."""
    return bool((weights == weights[:, :1]).all())


def centre(similarities: Tensor) -> Tensor:
    """Return (..., C) similarities minus their mean over the classes.

    Adding a constant to all similarities of a prompt changes none of its own predictions. Where classes weigh the
    prompt differently, it would favour those that weigh it more, so the mean is taken out before they are mixed.
    """
    similarities = similarities.float()
    return similarities - similarities.mean(dim=-1, keepdim=True)


def mix_two(general: Tensor, special: Tensor, pi: float) -> Tensor:
    """Return the mixture of the similarities of two prompts by one weight, in their own precision."""
    return (1 - pi) * general + pi * special


def mix(similarities: Tensor, weights: Tensor) -> Tensor:
    """Return the (B, C) weighted sum of (K + 1, B, C) similarities by (K + 1, C) weights."""
    return torch.einsum("kbc,kc->bc", similarities.float(), weights.float())


def mix_text(text: Tensor, weights: Tensor, centred: bool = False) -> Tensor:
    """Return (C, D) vectors whose product with an image feature is the mixture of the prompts' similarities.

    text: (K + 1, C, D) text features of each prompt; weights: (K + 1, C).
    centred: whether each prompt's similarities are centred over the classes first: see `centre`. They are
    linear in the text features, so that centring these is the same.
    The vectors are not of unit length, and must not be made so.
    """
    text = text.float()
    if centred:
        text = text - text.mean(dim=1, keepdim=True)
    return torch.einsum("kcd,kc->cd", text, weights.float())


def mix_equally(*logits: Tensor) -> Tensor:
    """Return the mean of (B, C) logits of several prompts at one scale: the uniform ensemble."""
    total = logits[0]
    for one in logits[1:]:
        total = total + one
    return total / len(logits)
