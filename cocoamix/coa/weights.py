"""CoA-weights: how much each learned prompt counts, for the classes it was trained on and for all others.

Two parameterisations of the same mixture. In both, prompt i has a log-weight a_i relative to the hand-crafted prompt 0,
one for its own classes ("in") and one for others ("out"), and pi = softmax(0, a_1, ..., a_K).

- one stage: the parameter is log 1/tau_i, a temperature of the prompt's own; a_i = log tau_0/tau_i. Logits are
  sum_i s_i/tau_i, so that the total scale is learned along.
- two stages: the parameter is a_i itself, and the scale is CLIP's.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cocoamix.choices import STAGES
from cocoamix.errors import check_choice

from .mixture import centre, class_weights, mix


class CoAWeights(nn.Module):
    """Two numbers for each learned prompt.

    logit_scale: CLIP's 1/tau.
    """

    def __init__(self, logit_scale: float, prompts: int = 1, stage: str = "one") -> None:
        super().__init__()
        check_choice("STAGE", stage, STAGES)
        self.logit_scale, self.stage = logit_scale, stage
        # One stage starts at CLIP's own temperature, two stages at equal weights: the same mixture.
        self.inside = nn.Parameter(torch.full((prompts,), self.zero))
        self.outside = nn.Parameter(torch.full((prompts,), self.zero))

    @property
    def zero(self) -> float:
        """The parameter at which a prompt weighs as much as prompt 0."""
        return math.log(self.logit_scale) if self.stage == "one" else 0.0

    def relative(self) -> tuple[Tensor, Tensor]:
        """Return the (K,) log-weights relative to prompt 0, for own classes and for others."""
        return self.inside - self.zero, self.outside - self.zero

    def pi(self, owner: Tensor) -> Tensor:
        """Return the (K + 1, C) weights of the prompts for each class."""
        return class_weights(*self.relative(), owner)

    def logits(self, similarities: Tensor, owner: Tensor, mixed: bool, centred: bool = False) -> Tensor:
        """Return the (B, C) logits of the mixture of (K + 1, B, C) similarities.

        mixed: whether the classes have different owners. One stage uses the learned total scale where they have not;
        in a mixed label space the scale is CLIP's for every class, so that none gains from a larger total.
        centred: whether each prompt's similarities are centred over the classes first: see `mixture.centre`.
        """
        pi = self.pi(owner)
        scale: Tensor | float = self.logit_scale
        if self.stage == "one" and not mixed:
            scale = self.logit_scale / pi[0, 0]  # sum_i 1/tau_i = (1/tau_0) / pi_0
        return mix(centre(similarities) if centred else similarities, pi) * scale

    def in_logits(self, similarities: Tensor) -> Tensor:
        """Return the logits of (K + 1, B, C) similarities of classes of the last prompt. Reaches the weights only."""
        owner = torch.full((similarities.shape[2],), similarities.shape[0] - 1, device=similarities.device)
        return self.logits(similarities.detach(), owner, mixed=False)

    def out_loss(self, similarities: Tensor, margin: float) -> Tensor:
        """Return the entropy loss on classes that no prompt was trained on. Reaches the weights only.

        The last prompt must be less sure of these (2, B, C) similarities, of prompt 0 and of itself, than the
        hand-crafted one, by `margin` in entropy divided by log C.
        """
        general, special = similarities.detach().float()
        _, outside = self.relative()
        scales: tuple[Tensor | float, Tensor]
        if self.stage == "one":
            scales = self.logit_scale, self.logit_scale * outside[-1].exp()
        else:
            nobody = torch.zeros(1, dtype=torch.long, device=outside.device)
            pi = class_weights(outside, outside, nobody)[:, 0]
            scales = self.logit_scale * pi[0], self.logit_scale * pi[-1]
        difference = entropy(general * scales[0]) - entropy(special * scales[1])
        return (difference + margin).clamp_min(0).mean()


def entropy(logits: Tensor) -> Tensor:
    """Return the (B,) entropy of (B, C) logits divided by log C, so that it is between 0 and 1."""
    log_p = logits.log_softmax(dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1) / math.log(max(logits.shape[-1], 2))
