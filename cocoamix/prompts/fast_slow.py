"""A context with a slow and a fast part (FSPT-FSCIL)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cocoamix.clip import FrozenCLIP

from .context import PromptLearner


class FastSlowPromptLearner(PromptLearner):
    """[SOS] slow fast class-name "." [EOT], or the class name between the two.

    Parameters have the names of FSPT-FSCIL's checkpoints: `ctx` is the slow context and `fast_ctx` the fast one. Both
    are drawn at once, so their initial values are those of a single context with as many vectors.
    """

    def __init__(
        self, clip: FrozenCLIP, classnames: Sequence[str], slow: int, fast: int, position: str = "end", seed: int = 0
    ) -> None:
        super().__init__(clip, classnames, slow + fast, position=position, seed=seed, before=slow)
        whole = self.ctx.detach()
        self.ctx, self.fast_ctx = nn.Parameter(whole[:slow].clone()), nn.Parameter(whole[slow:].clone())

    def context(self) -> Tensor:
        """Return the slow and the fast context, joined."""
        return torch.cat([self.ctx, self.fast_ctx])
