"""A context that is shifted for each image, as in CoCoOp."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cocoamix.clip import FrozenCLIP, Prompts
from cocoamix.seeding import seeded

from .context import PromptLearner

REDUCTION = 16  # embedding size over hidden size of the meta-network


class ConditionalPromptLearner(PromptLearner):
    """ctx_m(x) = ctx_m + h(f(x)): a small network h of the image feature shifts all context vectors equally.

    The network has CoCoOp's parameter names, `meta_net.linear1` and `meta_net.linear2`, and is always fp32.
    """

    def __init__(
        self, clip: FrozenCLIP, classnames: Sequence[str], n_ctx: int = 16, ctx_init: str = "", seed: int = 0
    ) -> None:
        super().__init__(clip, classnames, n_ctx=n_ctx, ctx_init=ctx_init, seed=seed)
        features, hidden = clip.sizes.embedding, max(1, clip.sizes.embedding // REDUCTION)
        with seeded(seed):
            layers = [
                ("linear1", nn.Linear(features, hidden)),
                ("relu", nn.ReLU()),
                ("linear2", nn.Linear(hidden, clip.text.width)),
            ]
        self.meta_net = nn.Sequential(OrderedDict(layers)).to(clip.device)

    def forward(self, image_features: Tensor | None = None) -> Prompts:
        """Return one set of prompts per (G, embedding) image feature; without features, the unshifted prompts."""
        prompts = super().forward()
        if image_features is None:
            return prompts
        shift = self.meta_net(image_features.float())[:, None]
        start = prompts.prefix[:1].expand(len(shift), -1, -1)
        return Prompts(torch.cat([start, prompts.prefix[1:] + shift], dim=1), prompts.own, prompts.layout)
