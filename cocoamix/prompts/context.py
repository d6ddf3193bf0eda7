"""Learned contexts: [SOS] ctx_1 .. ctx_M class-name "." [EOT], with the context as the only parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cocoamix.choices import POSITIONS
from cocoamix.clip import FrozenCLIP, Layout, Prompts, tokenize
from cocoamix.clip.class_names import class_words
from cocoamix.clip.tokens import encode
from cocoamix.errors import UserError, check_choice

STD = 0.02  # standard deviation of a random context


class PromptLearner(nn.Module):
    """A learned context with the class name at its end, middle or front.

    Parameters and buffers have CoOp's names and shapes, so that checkpoints can be exchanged: `ctx` is (M, width), or
    (C, M, width) if class-specific; `token_prefix` and `token_suffix` hold the embeddings before and after the context.
    The context is fp32 in every precision of the encoders.

    Args:
        clip: The frozen model.
        classnames: The class names.
        n_ctx: Number of context vectors, if `ctx_init` is empty.
        ctx_init: Initial words of the context; random if empty.
        class_specific: Learn one context per class (CSC).
        position: Position of the class name: `end`, `middle` or `front`.
        seed: Seed of a random context.
        pad_to: Pad the words of `ctx_init` at the front with zero vectors to this length.
        before: Number of vectors before the class name, for the position `middle`; by default half of them.
    """

    ctx: nn.Parameter
    token_prefix: Tensor
    token_suffix: Tensor
    own: Tensor | None
    order: Tensor | None

    def __init__(
        self,
        clip: FrozenCLIP,
        classnames: Sequence[str],
        n_ctx: int = 16,
        ctx_init: str = "",
        class_specific: bool = False,
        position: str = "end",
        seed: int = 0,
        pad_to: int = 0,
        before: int | None = None,
    ) -> None:
        super().__init__()
        check_choice("CLASS_TOKEN_POSITION", position, POSITIONS)
        names = [class_words(name) for name in classnames]
        words = ctx_init.replace("_", " ").strip()
        context_tokens = encode(words) if words else ()
        padding = max(0, pad_to - len(context_tokens)) if words else 0
        self.n_ctx = padding + len(context_tokens) if words else n_ctx
        self.n_cls = len(names)
        self.position, self._before_middle = position, before
        if self.n_ctx < 1:
            raise UserError(f"N_CTX is {n_ctx}, but a context has at least one vector.")
        self.initial_context = " ".join(["X"] * padding + [words]) if words else " ".join(["X"] * self.n_ctx)

        tokens = tokenize([f"{self.initial_context} {name}." for name in names], clip.text.context_length)
        embeddings = clip.text.embed(tokens.to(clip.device)).detach()
        if words:
            context = embeddings[0, 1 : 1 + self.n_ctx].float().clone()
            context[:padding] = 0
            context = context.repeat(self.n_cls, 1, 1) if class_specific else context
        else:
            shape = (self.n_ctx, clip.text.width)
            context = torch.empty(self.n_cls, *shape) if class_specific else torch.empty(shape)
            context.normal_(std=STD, generator=torch.Generator().manual_seed(seed))
        self.ctx = nn.Parameter(context.to(clip.device))
        self.register_buffer("token_prefix", embeddings[:, :1])
        self.register_buffer("token_suffix", embeddings[:, 1 + self.n_ctx :])
        lengths = [int(end) + 1 for end in tokens.argmax(dim=-1)]
        self.length = max(lengths)  # later positions are never read
        # The prefix that all prompts share: [SOS] and the part of a shared context before the class name.
        before = 0 if class_specific else self._before_name()
        self.layout = Layout(1 + before, [length - 1 - before for length in lengths], clip.device)
        # Only the class names follow a shared context at the start, and they never change.
        fixed = not class_specific and position == "end"
        self.register_buffer("own", self.layout.pack(embeddings).float() if fixed else None, persistent=False)
        order = None if position == "end" else self._order([len(encode(name)) for name in names]).to(clip.device)
        self.register_buffer("order", order, persistent=False)

    def _before_name(self) -> int:
        """Return the number of context vectors before the class name."""
        middle = self.n_ctx // 2 if self._before_middle is None else self._before_middle
        return {"end": self.n_ctx, "middle": middle, "front": 0}[self.position]

    def context(self) -> Tensor:
        """Return the whole context. A subclass may learn it in parts."""
        return self.ctx

    def _order(self, name_lengths: Sequence[int]) -> Tensor:
        """Return the (C, length) source positions that move the class name from the end to its position."""
        before = self._before_name()
        rows = []
        for name_length in name_lengths:
            name = list(range(1 + self.n_ctx, 1 + self.n_ctx + name_length))
            context = list(range(1, 1 + self.n_ctx))
            rest = list(range(1 + self.n_ctx + name_length, self.length))
            rows.append([0, *context[:before], *name, *context[before:], *rest])
        return torch.tensor(rows)

    def forward(self) -> Prompts:
        """Return the embedded prompts."""
        if self.own is not None:
            return Prompts(torch.cat([self.token_prefix[0].float(), self.context()]), self.own, self.layout)
        context = self.context()
        context = context if context.dim() == 3 else context.expand(self.n_cls, -1, -1)
        suffix = self.token_suffix[:, : self.length - 1 - self.n_ctx]
        prompts = torch.cat([self.token_prefix.float(), context, suffix.float()], dim=1)
        if self.order is not None:
            prompts = prompts.gather(1, self.order[:, :, None].expand(-1, -1, prompts.shape[-1]))
        return Prompts.of_embeddings(prompts, self.layout)


def as_one(learners: Sequence[PromptLearner]) -> nn.Module:
    """Return the prompt learners of all backbones as one module. A single one keeps CoOp's checkpoint keys."""
    return nn.ModuleList(learners) if len(learners) > 1 else learners[0]


def share(learner: nn.Module, trained: nn.Module) -> None:
    """Give a prompt learner of other classes the parameters of a trained one."""
    for name, parameter in trained.named_parameters():
        *path, leaf = name.split(".")
        setattr(learner.get_submodule(".".join(path)), leaf, parameter)
