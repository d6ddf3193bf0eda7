"""A pool of prompts, from which each image selects some by their keys (L2P)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cocoamix.clip import FrozenCLIP, Prompts
from cocoamix.seeding import derive_seed

from .context import STD, PromptLearner


class PromptPool(nn.Module):
    """Prompts and their keys, with L2P's names: `prompt` is (M, length, width) and `prompt_key` (M, embedding).

    Keys are drawn uniformly from [-1, 1], as in L2P.

    Args:
        prompt: Initial values of the prompts.
        embedding: Size of the keys.
        chosen: Number k of prompts per image.
        seed: Seed of the keys.
    """

    def __init__(self, prompt: Tensor, embedding: int, chosen: int, seed: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.prompt = nn.Parameter(prompt)
        keys = torch.empty(len(prompt), embedding).uniform_(-1, 1, generator=_generator(seed, "keys"))
        self.prompt_key = nn.Parameter(keys.to(prompt.device))

    def choose(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (B, k) indices of the prompts selected by each image, ascending, and the cosines to their keys.

        The selection of an image does not depend on the rest of the batch. Gradients reach the keys only.
        """
        similar = F.normalize(queries, dim=-1) @ F.normalize(self.prompt_key, dim=-1).t()
        # Sorted, so that a selection is a set and its context is computed once.
        numbers = similar.detach().topk(self.chosen, dim=1).indices.sort(dim=1).values
        return numbers, similar.gather(1, numbers)

    def prompts_of(self, numbers: Tensor) -> Tensor:
        """Return the (B, k length, width) prompts of (B, k) selections, joined in order."""
        return self.prompt[numbers].flatten(1, 2)


def visual_pool(clip: FrozenCLIP, size: int, length: int, chosen: int, seed: int) -> PromptPool:
    """Return a pool of tokens for the image encoder, drawn uniformly from [-1, 1], as in L2P."""
    prompt = torch.empty(size, length, int(clip.sizes.vision_width)).uniform_(-1, 1, generator=_generator(seed, "pool"))
    return PromptPool(prompt.to(clip.device), clip.sizes.embedding, chosen, seed)


class TextPool(PromptPool):
    """A pool whose selected prompts are the context: [SOS] selected prompts class-name "." [EOT]."""

    def __init__(
        self, clip: FrozenCLIP, classnames: Sequence[str], size: int, length: int, chosen: int, seed: int
    ) -> None:
        prompt = torch.empty(size, length, clip.text.width).normal_(
            std=STD, generator=torch.Generator().manual_seed(seed)
        )
        super().__init__(prompt.to(clip.device), clip.sizes.embedding, chosen, seed)
        # Embeds the class names after a context of the right length; that context itself is not used.
        names = PromptLearner(clip, classnames, chosen * length).requires_grad_(False)()
        self.start, self.names = names.prefix[:1], names

    def forward(self, choices: Tensor) -> Prompts:
        """Return the embedded prompts of all class names, one set for each of (G, k) selections."""
        start = self.start.expand(len(choices), -1, -1)
        return Prompts(torch.cat([start, self.prompts_of(choices)], dim=1), self.names.own, self.names.layout)


def _generator(seed: int, what: str) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, what))
