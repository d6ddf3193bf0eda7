"""The mixture model, Definition 3.1 and Eq. (3): p(c) = softmax_c(sum_i pi_i(c) s_i(c) / tau).

The weights are a (K + 1, C) matrix: prompt i has pi_i^in for the classes it was trained on and pi_i^out for all others
(Lemma 3.3), so one matrix describes any label space. `owner` (C,) holds the number 1..K of the prompt trained on each
class, or 0 for an out-class. Prompt 0 is the hand-crafted one and owns no class.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cocoamix.choices import MIXTURES
from cocoamix.clip.class_names import plain_class
from cocoamix.errors import check_choice


def find_owners(classnames: Sequence[str], domains: Sequence[Sequence[str]]) -> Tensor:
    """Return the owner of each class: i + 1 if its name is in `domains[i]` (the last one, if several), else 0."""
    owner = {plain_class(name): number for number, names in enumerate(domains, 1) for name in names}
    return torch.tensor([owner.get(plain_class(name), 0) for name in classnames])


def owners_in(domain: str, classnames: Sequence[str], trained: Sequence[str]) -> Tensor:
    """Return the owners of classes for a value of `DOMAIN`: 1 for an in-class of the only prompt, 0 for an out-class.

    Args:
        domain: `auto` for the classes that were trained on, `in` for all, `out` for none.
        classnames: The classes.
        trained: The classes that the prompt was trained on.
    """
    if domain == "auto":
        return find_owners(classnames, [trained])
    return torch.full((len(classnames),), int(domain == "in"))


def class_log_weights(inside: Tensor, outside: Tensor, owner: Tensor) -> Tensor:
    """Return the (K + 1, C) log-weights alpha of the prompts, up to a constant per class.

    Args:
        inside: (K,) alpha^in, log-weight of each learned prompt relative to prompt 0 for the classes it owns.
        outside: (K,) alpha^out, the same for all other classes.
        owner: (C,) owner of each class.
    """
    prompts = torch.arange(1, len(inside) + 1, device=owner.device)
    learned = torch.where(owner[None, :] == prompts[:, None], inside[:, None], outside[:, None])
    return torch.cat([learned.new_zeros(1, owner.shape[0]), learned])


def class_weights(inside: Tensor, outside: Tensor, owner: Tensor) -> Tensor:
    """Return the (K + 1, C) weights pi = softmax(alpha); every column sums to one."""
    return class_log_weights(inside, outside, owner).softmax(dim=0)


def weights_of_kind(kind: str, inside: Tensor, outside: Tensor, owner: Tensor) -> Tensor:
    """Return the (K + 1, C) weights for a value of `ENSEMBLE`; every column sums to one.

    Args:
        kind: `coa` for CoA-weights, `uniform` for equal weights, `none` for the owner of each class alone.
        inside: (K,) in-class log-weights relative to prompt 0.
        outside: (K,) out-class log-weights relative to prompt 0.
        owner: (C,) owner 1..K of each class.
    """
    check_choice("ENSEMBLE", kind, MIXTURES)
    if kind == "coa":
        return class_weights(inside, outside, owner)
    prompts = torch.arange(len(inside) + 1, device=owner.device)
    if kind == "uniform":
        return torch.full((len(prompts), len(owner)), 1 / len(prompts), device=owner.device)
    return (prompts[:, None] == owner[None, :]).float()


def all_columns_equal(weights: Tensor) -> bool:
    """Return whether all classes have the same column in (K + 1, C) weights."""
    return bool((weights == weights[:, :1]).all())


def centre(similarities: Tensor) -> Tensor:
    """Return (..., C) similarities minus their mean over the classes.

    A constant added to all similarities of a prompt does not change its own predictions. If classes weight the prompt
    differently, the constant favours those with the larger weight, so the mean is removed before mixing.
    """
    similarities = similarities.float()
    return similarities - similarities.mean(dim=-1, keepdim=True)


def mix_two(hand_crafted: Tensor, learned: Tensor, pi: float) -> Tensor:
    """Return (1 - pi) s_0 + pi s_1 in the precision of the inputs."""
    return (1 - pi) * hand_crafted + pi * learned


def mix(similarities: Tensor, weights: Tensor) -> Tensor:
    """Return sum_i pi_i s_i, (B, C), of (K + 1, B, C) similarities and (K + 1, C) weights."""
    return torch.einsum("kbc,kc->bc", similarities.float(), weights.float())


def mix_text(text: Tensor, weights: Tensor, centred: bool = False) -> Tensor:
    """Return (C, D) class vectors whose product with an image feature is the mixed similarity.

    The vectors do not have unit length and must not be normalised.

    Args:
        text: (K + 1, C, D) text features of each prompt.
        weights: (K + 1, C) weights.
        centred: Centre each prompt's similarities over the classes first (see `centre`). Because similarities are
            linear in the text features, this centres the text features.
    """
    text = text.float()
    if centred:
        text = text - text.mean(dim=1, keepdim=True)
    return torch.einsum("kcd,kc->cd", text, weights.float())


def mix_equally(*logits: Tensor) -> Tensor:
    """Return the mean of (B, C) logits of several prompts with the same scale: the uniform ensemble."""
    total = logits[0]
    for one in logits[1:]:
        total = total + one
    return total / len(logits)
