"""Where the tokens of many prompts stand when what they share is stored once and the rest is packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True)
class Chunk:
    """The index tensors of some neighbouring prompts. Their tokens are packed: P shared ones, then T own ones."""

    tokens: slice  # of the packed own tokens of all prompts
    prompts: int  # N
    longest: int  # S, the most own tokens that a prompt has
    padded: Tensor  # (N * S,) packed token in each place of a padded table; whatever it is in a place that is padding
    unpadded: Tensor  # (T,) place in the padded table of each own token
    ends: Tensor  # (N,) packed token that each prompt is read at
    causal: Tensor  # (S, P + S) whether an own token may look at a shared or own one
    reach: Tensor  # (N, 1, 1, P + S) whether a prompt's last token may


class Layout:
    """N prompts that begin with the same tokens and go on with own ones, each read at its last own token.

    shared: how many tokens they share, P.
    lengths: how many own tokens each has.
    """

    def __init__(self, shared: int, lengths: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.shared, self.lengths, self.device = shared, tuple(lengths), torch.device(device)
        self.positions = torch.tensor(
            [shared + place for length in lengths for place in range(length)], device=self.device
        )
        # Made once and kept: a step must not wait for a copy to the GPU.
        self._rows = torch.tensor(
            [row for row, length in enumerate(lengths) for _ in range(length)], device=self.device
        )
        self._chunks: dict[int, list[Chunk]] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of_tokens(cls, tokens: Tensor, device: torch.device | str = "cpu", shared: int | None = None) -> Layout:
        """Return the layout of (N, L) tokenised texts. shared: at most so many; by default all that are equal."""
        ends = tokens.argmax(dim=-1)  # the end-of-text token has the highest number
        most = int(ends.min())  # it is own even where all texts are the same
        if shared is None:
            same = (tokens == tokens[:1]).all(dim=0)[:most]
            shared = int(same.long().cumprod(dim=0).sum())
        return cls(min(shared, most), [end + 1 - min(shared, most) for end in ends.tolist()], device)

    def pack(self, embeddings: Tensor) -> Tensor:
        """Take the own tokens (T, width) out of (N, L, width) embeddings."""
        return embeddings.flatten(0, 1)[self._rows * embeddings.shape[1] + self.positions]

    def chunks(self, prompts: int) -> list[Chunk]:
        """Cut into groups of so many prompts."""
        if prompts not in self._chunks:
            firsts = range(0, len(self), prompts)
            tokens = list(accumulate(self.lengths, initial=0))
            self._chunks[prompts] = [
                self._chunk(self.lengths[first : first + prompts], tokens[first]) for first in firsts
            ]
        return self._chunks[prompts]

    def _chunk(self, lengths: Sequence[int], first: int) -> Chunk:
        shared, longest, device = self.shared, max(lengths), self.device
        count = torch.tensor(lengths)
        starts = shared + count.cumsum(0) - count
        places = torch.arange(longest)
        inside = places < count[:, None]
        padded = starts[:, None] + torch.minimum(places, count[:, None] - 1)
        reach = torch.arange(shared + longest) < shared + count[:, None]
        return Chunk(
            tokens=slice(first, first + sum(lengths)),
            prompts=len(lengths),
            longest=longest,
            padded=padded.flatten().to(device),
            unpadded=inside.flatten().nonzero().squeeze(1).to(device),
            ends=(starts + count - 1).to(device),
            causal=torch.ones(longest, shared + longest, dtype=torch.bool).tril(shared).to(device),
            reach=reach[:, None, None].to(device),
        )


@dataclass(frozen=True)
class Prompts:
    """Embedded prompts in a layout.

    prefix: (P, width) what all share; or (G, P, width) for G sets that differ in it and have the rest in common.
    own: (T, width) the packed own tokens.
    deep: (M, width) tokens for each of the layers after the first, which replace what came out of the layer before at
        the shared positions 1 to M; the layers that follow let them flow.
    """

    prefix: Tensor
    own: Tensor
    layout: Layout
    deep: Sequence[Tensor] = ()

    def __post_init__(self) -> None:
        if any(len(tokens) >= self.layout.shared for tokens in self.deep):
            raise ValueError(f"deeper tokens must lie among the {self.layout.shared} shared ones")

    @classmethod
    def of_embeddings(cls, embeddings: Tensor, layout: Layout) -> Prompts:
        """Pack (N, L, width) embeddings, of which the first `layout.shared` are the same in every row."""
        return cls(embeddings[0, : layout.shared], layout.pack(embeddings), layout)
