"""CoA-weights: the weights pi_i^in and pi_i^out of each learned prompt (Section 3.4, Eqs. 13-15, Appendix D.1).

Prompt i has two log-weights relative to the hand-crafted prompt 0: alpha_i^in for the classes it was trained on and
alpha_i^out for all others, with pi = softmax(0, alpha_1, ..., alpha_K). Appendix D.1 has two parameterisations:

- one stage: the parameter is log 1/tau_i, where tau_i is the temperature of prompt i and alpha_i = log tau_0/tau_i.
  The logits are sum_i s_i/tau_i, so the total scale is learned as well.
- two stages: the parameter is alpha_i itself, and the scale is CLIP's 1/tau.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cocoamix.choices import STAGES
from cocoamix.errors import check_choice

from .mixture import centre, class_weights, mix


class CoAWeights(nn.Module):
    """The parameters of pi^in and pi^out, one of each per learned prompt.

    Args:
        logit_scale: CLIP's 1/tau.
        prompts: Number K of learned prompts.
        stage: `one` or `two`, the parameterisation.
    """

    def __init__(self, logit_scale: float, prompts: int = 1, stage: str = "one") -> None:
        super().__init__()
        check_choice("STAGE", stage, STAGES)
        self.logit_scale, self.stage = logit_scale, stage
        # One stage starts at CLIP's temperature, two stages at equal weights: the same mixture.
        self.inside = nn.Parameter(torch.full((prompts,), self.equal_weight_value))
        self.outside = nn.Parameter(torch.full((prompts,), self.equal_weight_value))

    @property
    def equal_weight_value(self) -> float:
        """Value of the parameter at which a prompt has the weight of prompt 0."""
        return math.log(self.logit_scale) if self.stage == "one" else 0.0

    def relative(self) -> tuple[Tensor, Tensor]:
        """Return the (K,) log-weights relative to prompt 0, alpha^in and alpha^out."""
        return self.inside - self.equal_weight_value, self.outside - self.equal_weight_value

    def pi(self, owner: Tensor) -> Tensor:
        """Return the (K + 1, C) weights pi of the prompts for each class."""
        return class_weights(*self.relative(), owner)

    def logits(self, similarities: Tensor, owner: Tensor, mixed: bool, centred: bool = False) -> Tensor:
        """Return the (B, C) logits of the mixture model, Eq. (3).

        Args:
            similarities: (K + 1, B, C) similarities of each prompt.
            owner: (C,) owner of each class.
            mixed: Whether classes have different owners. If not, one stage uses the learned total scale. In a mixed
                label space all classes use CLIP's scale, so that no class gains from a larger total.
            centred: Centre each prompt's similarities over the classes first (see `mixture.centre`).
        """
        pi = self.pi(owner)
        return mix(centre(similarities) if centred else similarities, pi) * self.scale(pi, mixed)

    def scale(self, pi: Tensor, mixed: bool) -> Tensor | float:
        """Return the total scale of the logits, for the weights `pi` of the classes; `mixed` is as in `logits`."""
        # sum_i 1/tau_i = (1/tau_0) / pi_0
        return self.logit_scale / pi[0, 0] if self.stage == "one" and not mixed else self.logit_scale

    def in_logits(self, similarities: Tensor) -> Tensor:
        """Return the mixture's logits for classes of the last prompt, for the cross-entropy of pi^in, Eq. (13).

        Gradients reach the weights only, not the (K + 1, B, C) similarities.
        """
        owner = torch.full((similarities.shape[2],), similarities.shape[0] - 1, device=similarities.device)
        return self.logits(similarities.detach(), owner, mixed=False)

    def out_loss(self, similarities: Tensor, margin: float) -> Tensor:
        """Return L_Ent = max(0, H(p_0) - H(p_i) + d) on the out-classes, Eqs. (14) and (15).

        H is the normalised entropy and d the `margin`: the learned prompt must be less confident than the hand-crafted
        one. Gradients reach the weights only, not the (2, B, C) similarities of prompt 0 and the last prompt.
        """
        hand_crafted, learned = similarities.detach().float()
        _, outside = self.relative()
        scales: tuple[Tensor | float, Tensor]
        if self.stage == "one":
            scales = self.logit_scale, self.logit_scale * outside[-1].exp()
        else:
            no_owner = torch.zeros(1, dtype=torch.long, device=outside.device)
            pi = class_weights(outside, outside, no_owner)[:, 0]
            scales = self.logit_scale * pi[0], self.logit_scale * pi[-1]
        difference = entropy(hand_crafted * scales[0]) - entropy(learned * scales[1])
        return (difference + margin).clamp_min(0).mean()


def entropy(logits: Tensor) -> Tensor:
    """Return the (B,) normalised entropy H of (B, C) logits: divided by log C, so between 0 and 1."""
    log_p = logits.log_softmax(dim=-1)
    return -(log_p.exp() * log_p).sum(dim=-1) / math.log(max(logits.shape[-1], 2))
