"""The vision transformer with learned tokens in the input of each of the first layers.

The tokens come after [CLS] and the patches and have no position. The blocks run here, not in the package they come
from, so that results do not depend on the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .text_encoder import norm, split_heads


def encode_with_prompts(
    visual: Any, images: Tensor, prompts: Sequence[Tensor], watch: Callable[[Tensor], None] | None = None
) -> Tensor:
    """Encode (B, 3, H, W) images as (B, embedding) features. Keeps the gradients of the prompts.

    Args:
        visual: The image encoder of an OpenAI-style CLIP, a ViT.
        images: The images.
        prompts: (M, width) tokens for the input of each of the first layers; later layers keep their input.
        watch: Called with the (B, L, width) normalised tokens that the last layer attends to, the last point at which
            patches reach the features: [CLS], the patches row by row, then the prompts.
    """
    x = visual.conv1(images).flatten(2).transpose(1, 2)
    start = visual.class_embedding.to(x.dtype).expand(x.shape[0], 1, -1)
    x = torch.cat([start, x], dim=1) + visual.positional_embedding.to(x.dtype)
    fixed = x.shape[1]  # [CLS] and the patches
    blocks = visual.transformer.resblocks
    for layer, block in enumerate(blocks):
        if layer < len(prompts):
            tokens = prompts[layer].to(x.dtype).expand(x.shape[0], -1, -1)
            x = torch.cat([x[:, :fixed], tokens], dim=1)
        if layer == 0:
            x = norm(visual.ln_pre, x)
        normalised = norm(block.ln_1, x)
        if watch is not None and layer + 1 == len(blocks):
            watch(normalised)
        x = x + _attend(block.attn, normalised)
        x = x + block.mlp(norm(block.ln_2, x))
    features: Tensor = norm(visual.ln_post, x[:, 0]) @ visual.proj
    return features


def _attend(attention: nn.MultiheadAttention, x: Tensor) -> Tensor:
    """Return self-attention of (B, L, width)."""
    joint = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    query, key, value = split_heads(joint, 3, attention.num_heads)
    mixed = F.scaled_dot_product_attention(query, key, value)
    output: Tensor = attention.out_proj(mixed.transpose(1, 2).flatten(2))
    return output
