"""Layout of the tokens of many prompts: the shared prefix is stored once, the rest is packed without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True)
class Chunk:
    """Index tensors of a group of consecutive prompts. Their tokens are packed: P shared ones, then T own ones."""

    tokens: slice  # of the packed own tokens of all prompts
    prompts: int  # N
    longest: int  # S, the largest number of own tokens of a prompt
    padded: Tensor  # (N * S,) index of the packed token at each position of a padded table; arbitrary at padding
    unpadded: Tensor  # (T,) position of each own token in the padded table
    ends: Tensor  # (N,) index of the last packed token of each prompt
    causal: Tensor  # (S, P + S) whether an own token may attend to a shared or own token
    reach: Tensor  # (N, 1, 1, P + S) whether the last token of a prompt may attend to a shared or own token


class Layout:
    """N prompts with a shared prefix followed by own tokens, each read at its last own token.

    Args:
        shared: Number P of shared tokens.
        lengths: Number of own tokens of each prompt.
        device: Device of the index tensors.
    """

    def __init__(self, shared: int, lengths: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.shared, self.lengths, self.device = shared, tuple(lengths), torch.device(device)
        self.positions = torch.tensor(
            [shared + place for length in lengths for place in range(length)], device=self.device
        )
        # Created once, so that no step waits for a copy to the GPU.
        self._rows = torch.tensor(
            [row for row, length in enumerate(lengths) for _ in range(length)], device=self.device
        )
        self._chunks: dict[int, list[Chunk]] = {}

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def of_tokens(cls, tokens: Tensor, device: torch.device | str = "cpu", shared: int | None = None) -> Layout:
        """Return the layout of (N, L) tokenised texts.

        Args:
            tokens: The tokens.
            device: Device of the index tensors.
            shared: Largest number of shared tokens; by default, all tokens that the texts have in common at the start.
        """
        ends = tokens.argmax(dim=-1)  # the end-of-text token has the highest number
        most = int(ends.min())  # the end-of-text token is never shared, even if all texts are equal
        if shared is None:
            same = (tokens == tokens[:1]).all(dim=0)[:most]
            shared = int(same.long().cumprod(dim=0).sum())
        return cls(min(shared, most), [end + 1 - min(shared, most) for end in ends.tolist()], device)

    def pack(self, embeddings: Tensor) -> Tensor:
        """Return the own tokens (T, width) of (N, L, width) embeddings."""
        return embeddings.flatten(0, 1)[self._rows * embeddings.shape[1] + self.positions]

    def chunks(self, prompts: int) -> list[Chunk]:
        """Return the prompts in groups of at most `prompts`."""
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

    Attributes:
        prefix: (P, width) shared tokens; (G, P, width) for G sets of prompts that differ in the prefix only.
        own: (T, width) packed own tokens.
        layout: The layout.
        deep: (M, width) tokens for each of the first layers after the input. They replace the output of the previous
            layer at the shared positions 1 to M; later layers keep their input.
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
        """Pack (N, L, width) embeddings whose first `layout.shared` tokens are the same in every row."""
        return cls(embeddings[0, : layout.shared], layout.pack(embeddings), layout)
