"""The frozen text transformer, run on embeddings rather than tokens so that a context can be learned.

It is causal and read at the end-of-text token, so positions after the last one are left out:
the result is the same and most of the 77 positions are never computed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TextEncoder(nn.Module):
    """Text tower of an OpenAI-style CLIP, from OpenAI's package or open_clip: both name its parts alike."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.token_embedding = model.token_embedding
        self.positional_embedding = model.positional_embedding
        self.blocks = model.transformer.resblocks
        self.ln_final = model.ln_final
        self.text_projection = model.text_projection

    @property
    def dtype(self) -> torch.dtype:
        """What the matrices are stored in."""
        weight: Tensor = self.blocks[0].attn.in_proj_weight
        return weight.dtype

    @property
    def width(self) -> int:
        """Size of a token embedding, and so of a context vector."""
        return self.positional_embedding.shape[1]

    @property
    def context_length(self) -> int:
        return self.positional_embedding.shape[0]

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed (N, L) tokens as (N, L, width)."""
        embeddings: Tensor = self.token_embedding(tokens)
        return embeddings

    def forward(self, embeddings: Tensor, eot: Tensor) -> Tensor:
        """Encode (N, L, width) embeddings, read at positions `eot` (N,), as (N, embedding) features.

        L may be anything from the last end-of-text position + 1 up to the context length.
        """
        length = embeddings.shape[1]
        x = (embeddings.float() + self.positional_embedding[:length].float()).to(self.dtype)
        for block in self.blocks:
            x = x + _attend(block.attn, _norm(block.ln_1, x))
            x = x + block.mlp(_norm(block.ln_2, x))
        x = x[torch.arange(len(x), device=x.device), eot]
        return _norm(self.ln_final, x) @ self.text_projection


def _norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """Layer norm in fp32 whatever x is, as OpenAI's."""
    return F.layer_norm(x.float(), layer.normalized_shape, layer.weight, layer.bias, layer.eps).to(x.dtype)


def _attend(attention: nn.MultiheadAttention, x: Tensor) -> Tensor:
    """Causal self-attention of (N, L, width)."""
    n, length, width = x.shape
    joint = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    query, key, value = joint.view(n, length, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return attention.out_proj(mixed.transpose(1, 2).reshape(n, length, width))
