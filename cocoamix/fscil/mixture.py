"""The mixture over sessions: a prompt and two weights for each, learned once and kept.

Session s has prompt s + 1; prompt 0 is the hand-crafted one. A class takes pi^in of its own session's prompt and
pi^out of all others, normalised over the prompts of the sessions so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cocoamix.coa.weights import CoAWeights


def session_owners(sizes: Sequence[int]) -> Tensor:
    """Return the (C,) prompt number of each class, for sessions of so many classes."""
    return torch.repeat_interleave(torch.arange(1, len(sizes) + 1), torch.tensor(list(sizes)))


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
