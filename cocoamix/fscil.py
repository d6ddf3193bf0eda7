"""The mixture over sessions: a prompt and two weights for each, learned once and kept.

Session s has prompt s + 1; prompt 0 is the hand-crafted one. A class takes pi^in of its own session's prompt and
pi^out of all others, normalised over the prompts of the sessions so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .errors import check_choice
from .mixture import class_weights
from .weights import CoAWeights

MIXTURES = ("coa", "uniform", "none")


def session_owners(sizes: Sequence[int]) -> Tensor:
    """Return the (C,) prompt number of each class, for sessions of so many classes."""
    return torch.repeat_interleave(torch.arange(1, len(sizes) + 1), torch.tensor(list(sizes)))


def session_weights(kind: str, inside: Tensor, outside: Tensor, owner: Tensor) -> Tensor:
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


def mixed_features(text: Tensor, weights: Tensor, centred: bool = False) -> Tensor:
    """Return (C, D) vectors whose product with an image feature is the mixture of the prompts' similarities.

    text: (K + 1, C, D) text features of each prompt; weights: (K + 1, C).
    centred: whether each prompt's similarities are centred over the classes first: see `mixture.centre`. They are
    linear in the text features, so that centring these is the same.
    The vectors are not of unit length, and must not be made so.
    """
    text = text.float()
    if centred:
        text = text - text.mean(dim=1, keepdim=True)
    return torch.einsum("kcd,kc->cd", text, weights.float())


class SessionWeights(CoAWeights):
    """The two log-weights of a new session's prompt, beside those of earlier sessions, which stay as they are.

    earlier: (inside, outside) of each earlier session, each of one number.
    tied: without out-classes, other classes take what own classes take.
    """

    earlier_inside: Tensor
    earlier_outside: Tensor

    def __init__(self, logit_scale: float, earlier: Sequence[tuple[Tensor, Tensor]] = (), tied: bool = False) -> None:
        super().__init__(logit_scale, prompts=1, stage="two")
        if tied:
            self.outside: nn.Parameter = self.inside
        for name, side in (("earlier_inside", 0), ("earlier_outside", 1)):
            kept = [pair[side].detach().reshape(1) for pair in earlier]
            self.register_buffer(name, torch.cat(kept) if kept else torch.empty(0))

    def relative(self) -> tuple[Tensor, Tensor]:
        """Return the (K,) log-weights of all sessions so far, the new one last."""
        return torch.cat([self.earlier_inside, self.inside]), torch.cat([self.earlier_outside, self.outside])
