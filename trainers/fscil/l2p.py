"""L2P, learning to prompt (Wang et al., CVPR 2022), on CLIP: a pool of prompts, from which each image selects some.

How published comparisons adapted L2P to CLIP is not public. There are two variants: the selected prompts are either the
context of the class names (`text`) or extra tokens of the image encoder (`visual`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.backbones import find_backbone
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.prompts.hand_crafted import HandCraftedPrompt
from cocoamix.prompts.multimodal import need_vit
from cocoamix.prompts.pool import PromptPool, TextPool, visual_pool
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from .loop import Scorer, SessionTrainer

_POOL = "TRAINER.L2P.POOL"
_AROUND = 4  # tokens of the shortest prompt in addition to its context: start, a name of one token, full stop, end


@register(TRAINER_REGISTRY)
class L2PFSCIL(SessionTrainer):
    """One pool for all sessions, trained by cross-entropy and by the similarity of images to the selected keys."""

    section = "L2P"
    chooses_classes = True
    clip: FrozenCLIP
    pool: PromptPool

    def title(self) -> str:
        return f"L2P, {self.settings.POOL} pool"

    @property
    def is_visual(self) -> bool:
        """Whether the prompts are tokens of the image encoder, so that image features cannot be stored."""
        return bool(self.settings.POOL == "visual")

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
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

    # ------------------------------------------------------------------ training

    def build_model(self) -> None:
        self.frozen_images = not self.is_visual
        super().build_model()

    def make_hand_crafted(self) -> HandCraftedPrompt | None:
        if not self.is_visual:
            return None
        return HandCraftedPrompt(self.clip, self.settings.TEMPLATE, self.cfg.DATASET.NAME)

    def build_prompts(self) -> None:
        self.pool = self.make_pool(self.classnames)
        self.register(self.main_model, self.pool, self.cfg.OPTIM)
        self.start_from_previous_session()

    def make_pool(self, names: Sequence[str]) -> PromptPool:
        """Return an untrained pool. `names` are the classes of a text pool."""
        settings, seed = self.settings, derive_seed(self.seed, "context")
        sizes = settings.POOL_SIZE, settings.LENGTH, settings.TOP_K
        if self.is_visual:
            need_vit(self.clip, "The visual pool of L2P")
            return visual_pool(self.clip, *sizes, seed)
        return TextPool(self.clip, names, *sizes, seed)

    def encode(self, inputs: Tensor) -> Tensor:
        """Return image features, or for a visual pool the images, whose features depend on the selected prompts."""
        return inputs if self.is_visual else super().encode(inputs)

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        if self.is_visual:
            logits, similar = self._visual_logits(self.pool, image_features, self.hand_crafted_features())
        else:
            logits, similar = self._text_logits(image_features)
        terms = {"ce": F.cross_entropy(logits, labels), "key": similar.sum(dim=1).mean()}
        return {"loss": terms["ce"] - self.settings.KEY_WEIGHT * terms["key"], **terms}, logits

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

    def _visual_logits(self, pool: PromptPool, images: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of images with their selected prompts, and the cosines to the selected keys."""
        numbers, similar = pool.choose(self.clip.encode_image(images))
        start: Tensor = self.clip.visual.positional_embedding[0]  # type: ignore[index]
        tokens = pool.prompts_of(numbers) + start.float()  # L2P's prompts have the position of [CLS]
        return self.logits(self.clip.encode_image_with(images, [tokens]), text), similar

    def backward(self, terms: dict[str, Tensor]) -> None:
        super().backward(terms)
        if self.settings.CLIP_NORM:
            if self.scaler is not None:
                self.scaler.unscale_(self._optims[self.main_model])
            torch.nn.utils.clip_grad_norm_(self.pool.parameters(), self.settings.CLIP_NORM)

    # ------------------------------------------------------------------ evaluation

    def load_model(self, directory: str, epoch: int | None = None) -> None:
        super().load_model(directory, epoch)
        then = self.origins[0]["settings"].get(_POOL) if self.origins else None
        if then != self.settings.POOL:
            raise UserError(f"{directory} was trained with {_POOL} {then}. Use that instead of {self.settings.POOL}.")

    def scorer(self, session: int, names: Sequence[str] = ()) -> Scorer:
        classes = list(names) or self.seen_classes(session)
        pool = self.make_pool(classes)
        checkpoints.load_into(pool, self.session_models[session][self.main_model], f"session {session}")
        if isinstance(pool, TextPool):
            return self._text_scorer(pool)
        text = self.clip.encode_classes(classes, self.templates())
        return lambda images: self._visual_logits(pool, images, text)[0]

    def _text_scorer(self, pool: TextPool) -> Scorer:
        """Return a scorer that encodes the class names for each selection when it first occurs."""
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

    def why_not_exported(self) -> str:
        role = "tokens of the image encoder" if self.is_visual else "context of the class names"
        return f"each image selects its own prompts as {role}, so no fixed matrix gives the logits"
