"""The plain path of CoOp: all 77 positions of every class, and the image encoder in every step.

Benchmarks compare our path with it, and tests use it as an independent reference, because the blocks run the code of
their own package, `clip` or `open_clip`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.clip import FrozenCLIP, tokenize


class PlainPrompts:
    """Prompts with a shared context in front of the class names."""

    def __init__(self, clip: FrozenCLIP, classnames: Sequence[str], context: Tensor) -> None:
        self.clip, self.context = clip, context
        placeholder = " ".join(["X"] * len(context))
        tokens = tokenize([f"{placeholder} {name}." for name in classnames], clip.text.context_length)
        embeddings = clip.text.embed(tokens.to(clip.device)).detach()
        self.before, self.after = embeddings[:, :1], embeddings[:, 1 + len(context) :]
        self.ends = tokens.argmax(dim=-1).to(clip.device)
        length = clip.text.context_length
        self.mask = torch.full((length, length), float("-inf"), device=clip.device).triu(1)

    def encode(self, chosen: slice = slice(None)) -> Tensor:
        """Return the (N, embedding) unit vectors of the chosen classes."""
        text = self.clip.text
        before, after = self.before[chosen], self.after[chosen]
        x = torch.cat([before, self.context.expand(len(before), -1, -1), after], dim=1) + text.positional_embedding
        if self.clip.source == "clip":
            x = x.permute(1, 0, 2)  # OpenAI's blocks expect positions first, and include the mask
            for block in text.blocks:
                x = block(x)
            x = x.permute(1, 0, 2)
        else:
            for block in text.blocks:
                x = block(x, attn_mask=self.mask)
        x = text.ln_final(x)
        x = x[torch.arange(len(x), device=x.device), self.ends[chosen]] @ text.text_projection
        return F.normalize(x, dim=-1)
