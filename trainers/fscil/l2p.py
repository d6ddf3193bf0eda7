"""L2P, learning to prompt (Wang et al., CVPR 2022), on CLIP: a pool of prompts, from which each image selects some.

How published comparisons adapted L2P to CLIP is not public. There are two variants: the selected prompts are either the
context of the class names (`text`) or extra tokens of the image encoder (`visual`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.backbones import find_backbone
from cocoamix.errors import UserError
from cocoamix.fscil.model import SessionModel, SessionTask
from cocoamix.io import checkpoints
from cocoamix.model import IMAGES, Classifier, Losses
from cocoamix.prompts.hand_crafted import HandCraftedPrompt
from cocoamix.prompts.multimodal import need_vit
from cocoamix.prompts.pool import PromptPool, TextPool, visual_pool
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from .loop import SessionTrainer

_POOL = "TRAINER.L2P.POOL"
_AROUND = 4  # tokens of the shortest prompt in addition to its context: start, a name of one token, full stop, end


@dataclass
class ClippedLosses(Losses):
    """Losses whose gradients are clipped to a norm; 0 for none."""

    clips = True
    norm: float = 0.0
    parameters: list[nn.Parameter] = field(default_factory=list)

    def clip(self) -> None:
        if self.norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, self.norm)


class L2PModel(SessionModel):
    """One pool for all sessions, trained by cross-entropy and by the similarity of images to the selected keys."""

    section = "L2P"
    chooses_classes = continues = True
    clip: FrozenCLIP

    def __init__(self, clip: FrozenCLIP, task: SessionTask, settings: CfgNode, seed: int) -> None:
        super().__init__(clip, task, settings, seed)
        # The prompts of a visual pool are tokens of the image encoder, so image features cannot be stored.
        self.is_visual = settings.POOL == "visual"
        if self.is_visual:
            self.reads = IMAGES
            self.hand_crafted = HandCraftedPrompt(clip, settings.TEMPLATE, task.dataset)
        self.pool = self.parts[self.main_part] = self.make_pool(self.classnames)
        self.start_from_previous_session()

    @classmethod
    def check(cls, cfg: CfgNode) -> None:
        settings = cfg.TRAINER.L2P
        if settings.TOP_K > settings.POOL_SIZE:
            raise UserError(
                f"TRAINER.L2P.TOP_K is {settings.TOP_K}, but the pool has POOL_SIZE {settings.POOL_SIZE} prompts. "
                "Choose TOP_K of at most POOL_SIZE."
            )
        context, reads = settings.TOP_K * settings.LENGTH, find_backbone(cfg.MODEL.BACKBONE.NAME).sizes.context_length
        if settings.POOL == "text" and context > reads - _AROUND:
            raise UserError(
                f"TRAINER.L2P.TOP_K {settings.TOP_K} times TRAINER.L2P.LENGTH {settings.LENGTH} is a context of "
                f"{context} vectors, but {cfg.MODEL.BACKBONE.NAME} reads {reads} tokens, and a class name needs "
                f"at least {_AROUND} of them. Choose a smaller TOP_K or LENGTH."
            )

    @property
    def title(self) -> str:
        return f"L2P, {self.settings.POOL} pool"

    def make_pool(self, names: Sequence[str]) -> PromptPool:
        """Return an untrained pool. `names` are the classes of a text pool."""
        settings, seed = self.settings, derive_seed(self.seed, "context")
        sizes = settings.POOL_SIZE, settings.LENGTH, settings.TOP_K
        if self.is_visual:
            need_vit(self.clip, "The visual pool of L2P")
            return visual_pool(self.clip, *sizes, seed)
        return TextPool(self.clip, names, *sizes, seed)

    # ------------------------------------------------------------------ training

    def loss(self, inputs: Tensor, labels: Tensor, training: Collection[str] = ()) -> Losses:
        if self.hand_crafted is not None:
            features, similar = self._visual_features(self.pool, inputs)
            logits = self.logits(features, self.hand_crafted.of(self.classnames))
        else:
            logits, similar = self._text_logits(inputs)
        terms = {"ce": F.cross_entropy(logits, labels), "key": similar.sum(dim=1).mean()}
        total = terms["ce"] - self.settings.KEY_WEIGHT * terms["key"]
        return ClippedLosses(total, logits, terms, self.settings.CLIP_NORM, list(self.pool.parameters()))

    def _text_logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        assert isinstance(self.pool, TextPool)
        numbers, similar = self.pool.choose(features)
        choices, choice_of = numbers.unique(dim=0, return_inverse=True)
        text = self.clip.encode_prompts(self.pool(choices))
        return self._logits_of(features, text, choice_of), similar

    def _logits_of(self, features: Tensor, text: Tensor, choice_of: Tensor) -> Tensor:
        """Return (B, C) logits for (G, C, embedding) text features of G selections and (B,) selection indices."""
        if len(text) == 1:
            return self.logits(features, text[0])
        return self.clip.logit_scale * torch.einsum("bd,bcd->bc", features, text[choice_of])

    def _visual_features(self, pool: PromptPool, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features of images with their selected prompts, and the cosines to the selected keys."""
        numbers, similar = pool.choose(self.clip.encode_image(images))
        start: Tensor = self.clip.visual.positional_embedding[0]  # type: ignore[index]
        tokens = pool.prompts_of(numbers) + start.float()  # L2P's prompts have the position of [CLS]
        return self.clip.encode_image_with(images, [tokens]), similar

    # ------------------------------------------------------------------ evaluation

    def adopt(self, facts: Mapping[str, Any]) -> None:
        then = (facts.get("settings") or {}).get(_POOL)
        if then != self.settings.POOL:
            raise UserError(f"The run was trained with {_POOL} {then}. Use that instead of {self.settings.POOL}.")

    def after(self, session: int, names: Sequence[str] = ()) -> Classifier:
        classes = list(names) or self.seen(session)
        pool = self.make_pool(classes)
        checkpoints.load_into(pool, self.task.learned[session][self.main_part], f"session {session}")
        role = "tokens of the image encoder" if self.is_visual else "context of the class names"
        reason = f"each image selects its own prompts as {role}, so no fixed matrix gives the logits"
        if isinstance(pool, TextPool):
            return Classifier(classes, self._text_scorer(pool), self.encode, reason)
        text = self.clip.encode_classes(classes, self.templates)
        encode = partial(self._visual_features, pool)
        return Classifier(
            classes, lambda features: self.logits(features, text), lambda images: encode(images)[0], reason
        )

    def _text_scorer(self, pool: TextPool) -> Callable[[Tensor], Tensor]:
        """Return a function that encodes the class names for each selection when it first occurs."""
        known: dict[tuple[int, ...], Tensor] = {}

        def score(features: Tensor) -> Tensor:
            choices, choice_of = pool.choose(features)[0].unique(dim=0, return_inverse=True)
            for choice in choices:
                key = tuple(choice.tolist())
                if key not in known:
                    known[key] = self.clip.encode_prompts(pool(choice[None]))[0]
            text = torch.stack([known[tuple(choice.tolist())] for choice in choices])
            return self._logits_of(features, text, choice_of)

        return score


@register(TRAINER_REGISTRY)
class L2PFSCIL(SessionTrainer):
    """Trains `L2PModel`."""

    Model = L2PModel
