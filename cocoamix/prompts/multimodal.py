"""Learned tokens in both encoders, coupled by linear layers (MaPLe)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from cocoamix.clip import FrozenCLIP, Prompts
from cocoamix.clip.tokens import encode
from cocoamix.errors import UserError
from cocoamix.seeding import derive_seed, seeded

from .context import PromptLearner


def need_vit(clip: FrozenCLIP, who: str) -> None:
    """Raise a UserError if the image encoder is not a ViT. `who` names the method that adds tokens to it."""
    if not isinstance(clip.sizes.vision_layers, int):
        raise UserError(
            f"{who} adds tokens to a ViT, but {clip.name} is a ResNet. "
            "Set MODEL.BACKBONE.NAME to a ViT, such as ViT-B/16."
        )


_STD = 0.02  # standard deviation of the deeper tokens


class MultiModalPromptLearner(PromptLearner):
    """Text tokens for each of the first `depth` layers, and linear layers that map them to vision tokens.

    Parameters have the names of MaPLe's checkpoints: `ctx` and `proj` belong to the input, `compound_prompts_text` and
    `compound_prompt_projections` to the layers after the first.

    Args:
        clip: The frozen model, with a ViT.
        classnames: The class names.
        n_ctx: Tokens per layer.
        ctx_init: Initial words of the input's tokens. Tokens beyond `n_ctx` stay fixed. With fewer than `n_ctx` tokens,
            all are initialised at random.
        depth: Number of layers with learned tokens, including the input.
        seed: Seed of the random values.
    """

    rest: Tensor

    def __init__(
        self, clip: FrozenCLIP, classnames: Sequence[str], n_ctx: int, ctx_init: str, depth: int, seed: int = 0
    ) -> None:
        words = ctx_init.replace("_", " ").strip()
        if len(encode(words)) < n_ctx:
            words = ""
        super().__init__(clip, classnames, n_ctx, words, seed=seed)
        context, suffix = self.ctx.detach(), self.token_suffix
        self.ctx, self.n_ctx = nn.Parameter(context[:n_ctx].clone()), n_ctx
        # Words that are not learned are shared by all prompts.
        self.register_buffer("rest", context[n_ctx:], persistent=False)
        self.token_suffix = torch.cat([self.rest.to(suffix.dtype).expand(len(suffix), -1, -1), suffix], dim=1)
        text, vision = clip.text.width, clip.sizes.vision_width
        with seeded(derive_seed(seed, "coupling")):
            self.proj = nn.Linear(text, vision)
            deeper = [nn.Parameter(torch.empty(n_ctx, text).normal_(std=_STD)) for _ in range(depth - 1)]
            self.compound_prompts_text = nn.ParameterList(deeper)
            coupling = nn.Linear(text, vision)
            self.compound_prompt_projections = nn.ModuleList(copy.deepcopy(coupling) for _ in deeper)
        self.to(clip.device)

    def forward(self) -> Prompts:
        """Return the embedded prompts, with the deeper text tokens."""
        prompts = super().forward()
        prefix = torch.cat([prompts.prefix, self.rest])
        return replace(prompts, prefix=prefix, deep=tuple(self.compound_prompts_text))

    def vision_prompts(self) -> list[Tensor]:
        """Return the (n_ctx, vision width) tokens of each of the first layers."""
        pairs = zip(self.compound_prompt_projections, self.compound_prompts_text, strict=True)
        return [self.proj(self.ctx), *(coupling(tokens) for coupling, tokens in pairs)]
