"""The frozen text transformer, run on embeddings rather than tokens so that a context can be learned.

Attention is causal and the output is read at the end-of-text token, so these savings do not change the result:
- positions after that token are skipped;
- the shared prefix of all prompts, [SOS] and a shared context, runs once; each prompt runs only its own tokens, which
  attend to the keys and values of the prefix;
- own tokens are packed without padding, except in attention;
- the last layer computes only the end-of-text tokens.

Many prompts run in chunks. Beyond a memory budget, chunks are recomputed in the backward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .packing import Chunk, Prompts

BUDGET = 2**30  # bytes of activations to keep; chunks beyond it are recomputed
_CHUNK = 2**28  # bytes of activations of one chunk
_QUICK = 1.702  # factor of OpenAI's activation
_KEPT = 21  # values that a layer keeps for the backward pass, per token and channel, as measured in fp32
_COPIED = 3  # of these, values per shared token that every prompt copies: keys and values


class TextEncoder(nn.Module):
    """Text encoder of an OpenAI-style CLIP, from OpenAI's package or open_clip, which use the same names.

    Args:
        model: The CLIP model.
        at_once: Prompts per chunk; 0 to choose by their length and the size of the encoder.
    """

    def __init__(self, model: Any, at_once: int = 0) -> None:
        super().__init__()
        self.token_embedding = model.token_embedding
        self.positional_embedding = model.positional_embedding
        self.blocks = model.transformer.resblocks
        self.ln_final = model.ln_final
        self.text_projection = model.text_projection
        self.at_once = at_once

    @property
    def dtype(self) -> torch.dtype:
        """Data type of the matrices."""
        weight: Tensor = self.blocks[0].attn.in_proj_weight
        return weight.dtype

    @property
    def width(self) -> int:
        """Size of a token embedding and of a context vector."""
        return self.positional_embedding.shape[1]

    @property
    def context_length(self) -> int:
        """Largest number of tokens of a prompt."""
        return self.positional_embedding.shape[0]

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed (N, L) tokens as (N, L, width)."""
        embeddings: Tensor = self.token_embedding(tokens)
        return embeddings

    def forward(self, prompts: Prompts) -> Tensor:
        """Encode N prompts as (N, embedding) features, or G sets of them as (G, N, embedding)."""
        layout = prompts.layout
        prefix = prompts.prefix.float() + self.positional_embedding[: layout.shared].float()
        own = prompts.own.float() + self.positional_embedding[layout.positions].float()
        if prefix.dim() == 2:
            return self._encode_sets(prefix[None], own, prompts)[0]
        return self._encode_sets(prefix, own, prompts)

    def _encode_sets(self, prefix: Tensor, own: Tensor, prompts: Prompts) -> Tensor:
        layout = prompts.layout
        # Bytes of activations per prompt, with its copy of the shared keys and values. Without gradients, only one
        # layer is in memory at a time.
        layers = len(self.blocks) if torch.is_grad_enabled() else 1
        channel_bytes = self.width * layers * (4 if self.dtype == torch.float32 else 2)
        size = channel_bytes * (_KEPT * len(own) / len(layout) + _COPIED * layout.shared)
        sets, at_once, budget = self._plan_chunks(len(prefix), len(layout), size)
        parts, kept = [], 0.0
        for prefixes in prefix.split(sets):
            features = []
            for chunk in layout.chunks(at_once):
                part = own[chunk.tokens]
                kept += size * chunk.prompts * len(prefixes)
                if torch.is_grad_enabled() and kept > budget:
                    encoded = checkpoint(
                        self._encode, prefixes, part, chunk, prompts, use_reentrant=False, preserve_rng_state=False
                    )
                else:
                    encoded = self._encode(prefixes, part, chunk, prompts)
                features.append(encoded)
            parts.append(features[0] if len(features) == 1 else torch.cat(features, dim=1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _plan_chunks(self, sets: int, prompts: int, size: float) -> tuple[int, int, float]:
        """Return the number of sets in a chunk, the number of prompts per set, and the bytes of activations to keep.

        A few whole sets are better than parts of many, because each part runs the shared prefix of its set again.

        Args:
            sets: Number of sets.
            prompts: Number of prompts in a set.
            size: Bytes of activations per prompt.
        """
        if self.at_once:
            together, budget = self.at_once, 0.0 if sets * prompts > self.at_once else sets * prompts * size
        else:
            together, budget = int((BUDGET if sets * prompts * size <= BUDGET else _CHUNK) / size), float(BUDGET)
        return max(1, min(sets, together // prompts)), max(1, min(prompts, together)), budget

    def _encode(self, prefix: Tensor, own: Tensor, chunk: Chunk, prompts: Prompts) -> Tensor:
        """Encode the prompts of a chunk, with (G, P, width) shared and (T, width) own tokens, as (G, N, embedding)."""
        shared, deep = prompts.layout.shared, prompts.deep
        x = torch.cat([prefix, own.expand(len(prefix), -1, -1)], dim=1).to(self.dtype)
        for number, block in enumerate(self.blocks[:-1]):
            x = _replace(x, deep, number)
            x = x + _attend(block.attn, norm(block.ln_1, x), chunk, shared)
            x = x + _feed_forward(block.mlp, norm(block.ln_2, x))
        x, block = _replace(x, deep, len(self.blocks) - 1), self.blocks[-1]
        ends = _Rows.apply(x, chunk.ends)
        x = ends + _attend_from_ends(block.attn, norm(block.ln_1, x), norm(block.ln_1, ends), chunk, shared)
        x = x + _feed_forward(block.mlp, norm(block.ln_2, x))
        return norm(self.ln_final, x) @ self.text_projection


def _replace(x: Tensor, deep: Sequence[Tensor], layer: int) -> Tensor:
    """Replace the tokens after the first of (G, P + T, width) by the learned tokens of a layer, if it has any."""
    if not 0 < layer <= len(deep):
        return x
    tokens = deep[layer - 1].to(x.dtype).expand(len(x), -1, -1)
    return torch.cat([x[:, :1], tokens, x[:, 1 + tokens.shape[1] :]], dim=1)


def norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """Return the layer norm, computed in fp32 as in OpenAI's code and cast back to the type of x."""
    return F.layer_norm(x.float(), layer.normalized_shape, layer.weight, layer.bias, layer.eps).to(x.dtype)


def _feed_forward(mlp: Any, x: Tensor) -> Tensor:
    """Run the feed-forward layers of a block, which are half of the work.

    OpenAI's activation, x sigmoid(1.702 x), is silu(1.702 x) / 1.702. With the factors moved into the two products, it
    is one operation instead of four and needs a fraction of the memory.
    """
    if type(mlp.gelu).__name__ != "QuickGELU":
        return mlp(x)
    flat = x.reshape(-1, x.shape[-1])
    inner = torch.addmm(mlp.c_fc.bias, flat, mlp.c_fc.weight.t(), beta=_QUICK, alpha=_QUICK)
    outer = torch.addmm(mlp.c_proj.bias, F.silu(inner), mlp.c_proj.weight.t(), alpha=1 / _QUICK)
    return outer.view(x.shape)


def _attend(attention: nn.MultiheadAttention, x: Tensor, chunk: Chunk, shared: int) -> Tensor:
    """Return causal self-attention of packed tokens (G, P + T, width)."""
    sets, _, width = x.shape
    joint = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    head, own = _Spread.apply(joint, chunk, shared)
    head = split_heads(head, 3, attention.num_heads)
    query, key, value = split_heads(own, 3, attention.num_heads)
    mixed = F.scaled_dot_product_attention(query, _join(head[1], key), _join(head[2], value), attn_mask=chunk.causal)
    rest = _Rows.apply(mixed.transpose(1, 2).reshape(sets, -1, width), chunk.unpadded)
    first = F.scaled_dot_product_attention(head[0], head[1], head[2], is_causal=True)
    first = first.transpose(1, 2).reshape(sets, shared, width)
    return attention.out_proj(torch.cat([first, rest], dim=1))


def _attend_from_ends(attention: nn.MultiheadAttention, x: Tensor, ends: Tensor, chunk: Chunk, shared: int) -> Tensor:
    """Return attention of the prompts' last tokens (G, N, width) to packed tokens (G, P + T, width)."""
    sets, prompts, width = ends.shape
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    query = F.linear(ends, weight[:width], bias[:width]).view(sets * prompts, 1, width)
    head, own = _Spread.apply(F.linear(x, weight[width:], bias[width:]), chunk, shared)
    head = split_heads(head, 2, attention.num_heads)
    key, value = split_heads(own, 2, attention.num_heads)
    mixed = F.scaled_dot_product_attention(
        split_heads(query, 1, attention.num_heads)[0],
        _join(head[0], key),
        _join(head[1], value),
        attn_mask=chunk.reach.repeat(sets, 1, 1, 1) if sets > 1 else chunk.reach,
    )
    return attention.out_proj(mixed.transpose(1, 2).reshape(sets, prompts, width))


class _Spread(torch.autograd.Function):
    """Split packed tokens (G, P + T, channels) into shared (G, P, channels) and own ones (G * N, S, channels).

    Padding holds copies that no token attends to, so it gets no gradient. The backward pass is therefore a gather of
    rows, where autograd would scatter-add into zeros.
    """

    @staticmethod
    def forward(ctx: Any, joint: Tensor, chunk: Chunk, shared: int) -> tuple[Tensor, Tensor]:
        ctx.chunk = chunk
        own = joint.index_select(1, chunk.padded)
        return joint[:, :shared].clone(), own.view(len(joint) * chunk.prompts, chunk.longest, -1)

    @staticmethod
    def backward(ctx: Any, head: Tensor, own: Tensor) -> tuple[Tensor, None, None]:
        rows = own.reshape(len(head), -1, own.shape[-1]).index_select(1, ctx.chunk.unpadded)
        return torch.cat([head, rows], dim=1), None, None


class _Rows(torch.autograd.Function):
    """Select rows of (G, L, channels), each at most once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.rows, ctx.length = rows, x.shape[1]
        return x.index_select(1, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        whole = gradient.new_zeros(len(gradient), ctx.length, gradient.shape[2])
        return whole.index_copy_(1, ctx.rows, gradient), None


def split_heads(x: Tensor, parts: int, heads: int) -> Tensor:
    """Turn (B, L, parts * width) into (parts, B, heads, L, width / heads)."""
    return x.view(*x.shape[:2], parts, heads, -1).permute(2, 0, 3, 1, 4)


def _join(shared: Tensor, own: Tensor) -> Tensor:
    """Prepend keys or values of the shared tokens (G, heads, P, d) to those of every prompt (G * N, heads, S, d)."""
    sets, prompts = len(shared), len(own) // len(shared)
    copies = shared[:, None].expand(-1, prompts, -1, -1, -1)
    return torch.cat([copies, own.view(sets, prompts, *own.shape[1:])], dim=3).flatten(0, 1)
