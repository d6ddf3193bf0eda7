"""Both towers with MaPLe's tokens, by the blocks of the package that they come from, over all positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.clip import FrozenCLIP, tokenize
from cocoamix.prompts.multimodal import MultiModalPromptLearner


def plain_text(clip: FrozenCLIP, learner: MultiModalPromptLearner, words: str, names: Sequence[str]) -> Tensor:
    """Return unit features; positions 1 to n are replaced before the first blocks."""
    tokens = tokenize([f"{words} {name.replace('_', ' ')}." for name in names])
    x, n, length = clip.text.embed(tokens).detach(), learner.n_ctx, tokens.shape[1]
    x = torch.cat([x[:, :1], learner.ctx.expand(len(x), -1, -1), x[:, 1 + n :]], dim=1) + clip.text.positional_embedding
    mask = torch.full((length, length), float("-inf")).triu(1)
    for number, block in enumerate(clip.text.blocks):
        if 0 < number <= len(learner.compound_prompts_text):
            own = learner.compound_prompts_text[number - 1].expand(len(x), -1, -1)
            x = torch.cat([x[:, :1], own, x[:, 1 + n :]], dim=1)
        x = _run_block(clip, block, x, mask)
    x = clip.text.ln_final(x)[torch.arange(len(x)), tokens.argmax(dim=-1)] @ clip.text.text_projection
    return F.normalize(x, dim=-1)


def plain_image(clip: FrozenCLIP, images: Tensor, learner: MultiModalPromptLearner) -> Tensor:
    """Return unit features; the last n positions are replaced before the first blocks."""
    visual = clip.visual
    x = visual.conv1(images).flatten(2).permute(0, 2, 1)
    x = torch.cat([visual.class_embedding.expand(len(x), 1, -1), x], dim=1) + visual.positional_embedding
    x = visual.ln_pre(torch.cat([x, learner.proj(learner.ctx).expand(len(x), -1, -1)], dim=1))
    for number, block in enumerate(visual.transformer.resblocks):
        if 0 < number <= len(learner.compound_prompts_text):
            tokens = learner.compound_prompt_projections[number - 1](learner.compound_prompts_text[number - 1])
            x = torch.cat([x[:, : -learner.n_ctx], tokens.expand(len(x), -1, -1)], dim=1)
        x = _run_block(clip, block, x, None)
    return F.normalize(visual.ln_post(x[:, 0]) @ visual.proj, dim=-1)


def _run_block(clip: FrozenCLIP, block: torch.nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    if clip.source == "open_clip":
        return block(x, attn_mask=mask)  # type: ignore[no-any-return]
    return block(x.permute(1, 0, 2)).permute(1, 0, 2)  # type: ignore[no-any-return]
