"""The mixture over sessions: one prompt and two weights per session, which later sessions do not change.

Session s has prompt s + 1; prompt 0 is the hand-crafted one. The weights of a class are pi^in of its own session's
prompt and pi^out of all others, normalised over the prompts so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cocoamix.coa.weights import CoAWeights


def session_owners(sizes: Sequence[int]) -> Tensor:
    """Return the (C,) owner of each class, for sessions with these numbers of classes."""
    return torch.repeat_interleave(torch.arange(1, len(sizes) + 1), torch.tensor(list(sizes)))


class SessionWeights(CoAWeights):
    """The two log-weights of a new session's prompt, with the fixed ones of earlier sessions.

    Args:
        logit_scale: CLIP's 1/tau.
        earlier: (inside, outside) of each earlier session, one number each.
        tied: Use pi^in for all classes, because there are no out-classes.
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
