"""Prompts in a pool, of which each image chooses some by their keys (L2P)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cocoamix.clip import FrozenCLIP, Prompts
from cocoamix.seeding import derive_seed

from .context import STD, PromptLearner


class PromptPool(nn.Module):
    """Prompts and their keys. `prompt` is (M, length, width), `prompt_key` (M, embedding), as L2P calls them.

    Keys start uniformly between -1 and 1, as L2P's do.
    """

    def __init__(self, prompt: Tensor, embedding: int, chosen: int, seed: int) -> None:
        """prompt: what the prompts start from. chosen: how many an image takes."""
        super().__init__()
        self.chosen = chosen
        self.prompt = nn.Parameter(prompt)
        keys = torch.empty(len(prompt), embedding).uniform_(-1, 1, generator=_generator(seed, "keys"))
        self.prompt_key = nn.Parameter(keys.to(prompt.device))

    def choose(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (B, k) numbers of the prompts that images choose, ascending, and the cosines to their keys.

        An image chooses for itself, whatever is in the batch beside it. Gradients of the cosines reach the keys alone.
        """
        similar = F.normalize(queries, dim=-1) @ F.normalize(self.prompt_key, dim=-1).t()
        # In the order of the pool, so that a choice is a set and its context is computed once.
        numbers = similar.detach().topk(self.chosen, dim=1).indices.sort(dim=1).values
        return numbers, similar.gather(1, numbers)

    def prompts_of(self, numbers: Tensor) -> Tensor:
        """Return the (B, k length, width) prompts of choices, one behind the other."""
        return self.prompt[numbers].flatten(1, 2)


def visual_pool(clip: FrozenCLIP, size: int, length: int, chosen: int, seed: int) -> PromptPool:
    """Return prompts to stand beside the patches of an image. They start uniformly between -1 and 1, as L2P's do."""
    prompt = torch.empty(size, length, int(clip.sizes.vision_width)).uniform_(-1, 1, generator=_generator(seed, "pool"))
    return PromptPool(prompt.to(clip.device), clip.sizes.embedding, chosen, seed)


class TextPool(PromptPool):
    """Prompts that are the context of class names: [SOS] the chosen prompts class-name "." [EOT]."""

    def __init__(
        self, clip: FrozenCLIP, classnames: Sequence[str], size: int, length: int, chosen: int, seed: int
    ) -> None:
        prompt = torch.empty(size, length, clip.text.width).normal_(
            std=STD, generator=torch.Generator().manual_seed(seed)
        )
        super().__init__(prompt.to(clip.device), clip.sizes.embedding, chosen, seed)
        # The names stand behind as many vectors as a choice has; its own context is not used.
        names = PromptLearner(clip, classnames, chosen * length).requires_grad_(False)()
        self.start, self.names = names.prefix[:1], names

    def forward(self, choices: Tensor) -> Prompts:
        """Return the embedded prompts of all class names, one set for each of (G, k) choices."""
        start = self.start.expand(len(choices), -1, -1)
        return Prompts(torch.cat([start, self.prompts_of(choices)], dim=1), self.names.own, self.names.layout)


def _generator(seed: int, what: str) -> torch.Generator:
    return torch.Generator().manual_seed(derive_seed(seed, what))
