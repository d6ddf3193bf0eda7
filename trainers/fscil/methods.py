"""FSCIL methods of the paper: CoCoA-Mix with one prompt per session, CoOp-FSCIL and CLIP-ZSL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.coa.mixture import all_columns_equal, find_owners, mix_text, weights_of_kind
from cocoamix.coa.weights import CoAWeights
from cocoamix.config.keys import context_words
from cocoamix.errors import UserError
from cocoamix.fscil.files import Models
from cocoamix.fscil.mixture import SessionWeights, session_owners
from cocoamix.io import checkpoints
from cocoamix.prompts.context import PromptLearner, as_one
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from ..cocoamix import CoCoAMix
from ..coop import CoOp
from ..zsclip import ZeroshotCLIP
from .loop import SessionTrainer


@register(TRAINER_REGISTRY)
class ZeroshotCLIPFSCIL(SessionTrainer, ZeroshotCLIP):
    """The paper's CLIP-ZSL: the dataset's template for every class, without training."""

    def title(self) -> str:
        return "CLIP-ZSL"

    def classifier(self, session: int, names: Sequence[str] = ()) -> Tensor:
        return self.clip.encode_classes(list(names) or self.seen_classes(session), self.templates())


@register(TRAINER_REGISTRY)
class CoOpFSCIL(SessionTrainer, CoOp):
    """The paper's CoOp-FSCIL: one context, tuned further by cross-entropy in each session."""

    chooses_classes = True

    def title(self) -> str:
        return "CoOp-FSCIL"

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        if cfg.TRAINER.COOP.ENSEMBLE != "none":
            raise UserError(
                f"TRAINER.COOP.ENSEMBLE is {cfg.TRAINER.COOP.ENSEMBLE}, but CoOp-FSCIL has a single context: use none, "
                "or CoCoAMixFSCIL with TRAINER.COCOAMIX.ENSEMBLE uniform."
            )
        if cfg.TRAINER.COOP.CSC:
            raise UserError(
                "TRAINER.COOP.CSC is True, but class-specific contexts cannot be tuned further on later classes."
            )

    def build_prompts(self) -> None:
        super().build_prompts()
        self.start_from_previous_session()

    def classifier(self, session: int, names: Sequence[str] = ()) -> Tensor:
        settings = self.settings
        learner = PromptLearner(
            self.clip,
            list(names) or self.seen_classes(session),
            n_ctx=settings.N_CTX,
            ctx_init=context_words(settings.CTX_INIT),
            position=settings.CLASS_TOKEN_POSITION,
        )
        checkpoints.load_into(learner, self.session_models[session]["prompt_learner"], f"session {session}")
        return self.clip.encode_prompts(learner())


@register(TRAINER_REGISTRY)
class CoCoAMixFSCIL(SessionTrainer, CoCoAMix):
    """One prompt and two weights per session, learned in two stages and mixed with those of earlier sessions."""

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        mix = cfg.TRAINER.COCOAMIX
        if mix.ENSEMBLE == "coa" and mix.STAGE != "two":
            raise UserError(
                f"TRAINER.COCOAMIX.STAGE is {mix.STAGE}, but the weights of a session are learned after its prompt, "
                "at CLIP's temperature: use STAGE two."
            )
        for key, value in (("WEIGHT_FIT", "train"), ("CALIBRATED", False)):
            if mix[key] != value:
                raise UserError(f"TRAINER.COCOAMIX.{key} is {mix[key]}, but sessions have no folds: use {value}.")
        if mix.DOMAIN != "auto":
            raise UserError(f"TRAINER.COCOAMIX.DOMAIN is {mix.DOMAIN}, but sessions define the in-classes: use auto.")

    def title(self) -> str:
        kind = self.settings.ENSEMBLE
        return "CoCoA-Mix" + {"coa": "", "uniform": " (uniform)", "none": " (own prompt alone)"}[kind]

    # ------------------------------------------------------------------ a session's prompt and weights

    def make_weights(self) -> CoAWeights:
        earlier = [_weights_of(models) for models in self.session_models] if self.settings.ENSEMBLE == "coa" else []
        return SessionWeights(self.clip.logit_scale, earlier, tied=self.settings.OUT_CLASSES == "none")

    @property
    def weight_epochs(self) -> int:
        return int(self.cfg.FSCIL.WEIGHT_EPOCHS if self.session else self.cfg.FSCIL.BASE_WEIGHT_EPOCHS)

    def more_results(self) -> dict[str, Any]:
        """Add how the second stage of each session ended, if there was one."""
        results = super().more_results()
        results = {key: value for key, value in results.items() if key not in ("second_stage", "weights")}
        ended = [origin.get("second_stage") for origin in self.origins]
        return {**results, **({"second_stages": ended} if any(ended) else {})}

    def epoch_limit(self) -> int:
        keys = self.cfg.FSCIL
        second = max(keys.WEIGHT_EPOCHS, keys.BASE_WEIGHT_EPOCHS) if self.settings.ENSEMBLE == "coa" else 0
        return int(self.cfg.OPTIM.MAX_EPOCH + second)

    @property
    def context_seed(self) -> int:
        return derive_seed(self.seed, "context", self.session)

    def choose_outclasses(self) -> list[str]:
        """Return generated class names in session 0, and the classes of all earlier sessions after it."""
        if self.session == 0 or self.settings.OUT_CLASSES == "none":
            return super().choose_outclasses()
        names = self.seen_classes(self.session - 1)
        print(f"Out-classes: the {len(names)} classes of earlier sessions")
        return names

    def other_prompts(self) -> list[Tensor]:
        """Return the hand-crafted prompt and those of earlier sessions for the session's own classes."""
        return [self.block_features(prompt, self.session) for prompt in range(self.session + 1)]

    # ------------------------------------------------------------------ evaluation

    def evaluated_protocol(self) -> dict[str, Any]:
        """Add `centred` if similarities were centred in any session.

        The protocol of training does not have it, so that it is the same for all sessions of a run.
        """
        return {**super().evaluated_protocol(), **({"centred": True} if self._any_centred else {})}

    def build_model(self) -> None:
        self._any_centred = False
        self._blocks: dict[tuple[int, int], Tensor] = {}
        super().build_model()

    @torch.no_grad()
    def block_features(self, prompt: int, session: int) -> Tensor:
        """Return the (C, embedding) text features of a prompt for the classes of a session.

        Each pair is encoded separately and once, so that a resumed run computes the same bits.

        Args:
            prompt: 0 for the hand-crafted prompt, i + 1 for the prompt of session i.
            session: The session whose classes to encode.
        """
        key = prompt, session
        if key not in self._blocks:
            self._blocks[key] = self._prompt_features(prompt, self.sessions[session].classnames)
        return self._blocks[key]

    @torch.no_grad()
    def _prompt_features(self, prompt: int, names: Sequence[str]) -> Tensor:
        if prompt == 0:
            return self.clip.encode_classes(names, self.templates())
        return self.encode_learners(self._learners_of(prompt - 1, names))

    def _learners_of(self, session: int, names: Sequence[str]) -> list[PromptLearner]:
        """Return the prompt learners of a finished session for `names`."""
        learners = [self.make_learner(clip, names) for clip in self.clip.each()]
        checkpoints.load_into(as_one(learners), self.session_models[session]["prompt_learner"], f"session {session}")
        return learners

    def classifier(self, session: int, names: Sequence[str] = ()) -> Tensor:
        prompts, blocks = range(session + 2), range(session + 1)
        if names:
            text = torch.stack([self._prompt_features(prompt, names) for prompt in prompts])
        else:
            text = torch.stack(
                [torch.cat([self.block_features(prompt, block) for block in blocks]) for prompt in prompts]
            )
        weights = self.mixture_weights(session, names)
        centred = bool(self.settings.CENTRE) and not all_columns_equal(weights)
        self._any_centred |= centred
        return mix_text(text, weights, centred)

    def mixture_weights(self, session: int, names: Sequence[str] = ()) -> Tensor:
        """Return the (K + 1, C) weights of the prompts up to `session`, for all classes seen so far or for `names`."""
        own = [one.classnames for one in self.sessions[: session + 1]]
        owner = (find_owners(names, own) if names else session_owners([len(one) for one in own])).to(self.device)
        inside, outside = torch.zeros(2, session + 1, device=self.device)
        if self.settings.ENSEMBLE == "coa":
            pairs = [_weights_of(models) for models in self.session_models[: session + 1]]
            inside, outside = (torch.cat(side).to(self.device) for side in zip(*pairs, strict=True))
        return weights_of_kind(self.settings.ENSEMBLE, inside, outside, owner)


def _weights_of(models: Models) -> tuple[Tensor, Tensor]:
    """Return the two log-weights of a finished session."""
    weights = models.get("coa_weights")
    if weights is None:
        raise UserError(
            "A session has no weights, because it was trained with a TRAINER.COCOAMIX.ENSEMBLE other than coa. "
            "Evaluate it with that value, or train with coa."
        )
    # Without out-classes there is one weight, pi^in, for all classes.
    pair = weights.get("inside"), weights.get("outside", weights.get("inside"))
    if not all(side is not None and side.shape == (1,) for side in pair):
        raise UserError("The weights of a session are not two numbers: its file was altered. Restore it.")
    return cast(tuple[Tensor, Tensor], pair)
