"""FSCIL methods of the paper: CoCoA-Mix with one prompt per session, CoOp-FSCIL and CLIP-ZSL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.coa.mixture import all_columns_equal, find_owners, mix_text, weights_of_kind
from cocoamix.coa.weights import CoAWeights
from cocoamix.errors import UserError
from cocoamix.fscil.files import Models
from cocoamix.fscil.mixture import SessionWeights, session_owners
from cocoamix.fscil.model import SessionModel, SessionTask
from cocoamix.io import checkpoints
from cocoamix.model import Classifier
from cocoamix.prompts.context import as_one
from cocoamix.registry import register
from cocoamix.seeding import derive_seed

from ..cocoamix import PROMPT, WEIGHTS, CoCoAMixModel
from ..coop import CoOpModel
from ..zsclip import ZeroshotModel
from .loop import SessionTrainer


class ZeroshotSessions(SessionModel, ZeroshotModel):
    """The paper's CLIP-ZSL: the dataset's template for every class, without training."""

    title = "CLIP-ZSL"

    def vectors(self, session: int, names: Sequence[str]) -> Tensor:
        return self.clip.encode_classes(list(names) or self.seen(session), self.templates)


class CoOpSessions(SessionModel, CoOpModel):
    """The paper's CoOp-FSCIL: one context, tuned further by cross-entropy in each session."""

    title = "CoOp-FSCIL"
    chooses_classes = continues = True

    def __init__(self, clip: FrozenCLIP, task: SessionTask, settings: CfgNode, seed: int) -> None:
        super().__init__(clip, task, settings, seed)
        self.start_from_previous_session()

    @classmethod
    def check(cls, cfg: CfgNode) -> None:
        if cfg.TRAINER.COOP.ENSEMBLE != "none":
            raise UserError(
                f"TRAINER.COOP.ENSEMBLE is {cfg.TRAINER.COOP.ENSEMBLE}, but CoOp-FSCIL has a single context: use none, "
                "or CoCoAMixFSCIL with TRAINER.COCOAMIX.ENSEMBLE uniform."
            )
        if cfg.TRAINER.COOP.CSC:
            raise UserError(
                "TRAINER.COOP.CSC is True, but class-specific contexts cannot be tuned further on later classes."
            )

    def vectors(self, session: int, names: Sequence[str]) -> Tensor:
        learner = self.make_learner(list(names) or self.seen(session))
        checkpoints.load_into(learner, self.task.learned[session][self.main_part], f"session {session}")
        return self.clip.encode_prompts(learner())


class CoCoAMixSessions(SessionModel, CoCoAMixModel):
    """One prompt and two weights per session, learned in two stages and mixed with those of earlier sessions."""

    task: SessionTask

    @classmethod
    def settings_of(cls, cfg: CfgNode) -> CfgNode:
        settings = super().settings_of(cfg).clone()
        settings.defrost()
        settings.BASE_WEIGHT_EPOCHS, settings.LATER_WEIGHT_EPOCHS = (
            cfg.FSCIL.BASE_WEIGHT_EPOCHS,
            cfg.FSCIL.WEIGHT_EPOCHS,
        )
        return settings

    @classmethod
    def check(cls, cfg: CfgNode) -> None:
        super().check(cfg)
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

    @classmethod
    def most_epochs(cls, cfg: CfgNode) -> int:
        weights = max(cfg.FSCIL.WEIGHT_EPOCHS, cfg.FSCIL.BASE_WEIGHT_EPOCHS)
        return int(cfg.OPTIM.MAX_EPOCH + (weights if cfg.TRAINER.COCOAMIX.ENSEMBLE == "coa" else 0))

    @property
    def title(self) -> str:
        kind = self.settings.ENSEMBLE
        return "CoCoA-Mix" + {"coa": "", "uniform": " (uniform)", "none": " (own prompt alone)"}[kind]

    # ------------------------------------------------------------------ a session's prompt and weights

    def make_weights(self) -> CoAWeights:
        learned = self.task.learned[: self.task.session] if self.settings.ENSEMBLE == "coa" else []
        tied = self.settings.OUT_CLASSES == "none"
        weights = SessionWeights(self.clip.logit_scale, [_weights_of(models) for models in learned], tied)
        return weights.to(self.clip.each()[0].device)

    @property
    def weight_epochs(self) -> int:
        return int(self.settings.LATER_WEIGHT_EPOCHS if self.task.session else self.settings.BASE_WEIGHT_EPOCHS)

    @property
    def context_seed(self) -> int:
        return derive_seed(self.seed, "context", self.task.session)

    def choose_outclasses(self) -> list[str]:
        """Return generated class names in session 0, and the classes of all earlier sessions after it."""
        if self.task.session == 0 or self.settings.OUT_CLASSES == "none":
            return super().choose_outclasses()
        names = self.seen(self.task.session - 1)
        self.notes.append(f"Out-classes: the {len(names)} classes of earlier sessions")
        return names

    def other_prompts(self) -> list[Tensor]:
        """Return the hand-crafted prompt and those of earlier sessions for the session's own classes."""
        return [self.block_features(prompt, self.task.session) for prompt in range(self.task.session + 1)]

    # ------------------------------------------------------------------ the mixture

    @torch.no_grad()
    def block_features(self, prompt: int, session: int) -> Tensor:
        """Return the (C, embedding) text features of a prompt for the classes of a session.

        Each pair is encoded separately and once, so that a resumed run computes the same bits.

        Args:
            prompt: 0 for the hand-crafted prompt, i + 1 for the prompt of session i.
            session: The session whose classes to encode.
        """
        key = prompt, session
        if key not in self.task.shared:
            self.task.shared[key] = self._prompt_features(prompt, self.task.sessions[session])
        return self.task.shared[key]

    @torch.no_grad()
    def _prompt_features(self, prompt: int, names: Sequence[str]) -> Tensor:
        if prompt == 0:
            return self.clip.encode_classes(names, self.templates)
        learners = [self.make_learner(clip, names) for clip in self.clip.each()]
        checkpoints.load_into(as_one(learners), self.task.learned[prompt - 1][PROMPT], f"session {prompt - 1}")
        return self.encode_learners(learners)

    @torch.no_grad()
    def after(self, session: int, names: Sequence[str] = ()) -> Classifier:
        classifier = super().after(session, names)
        weights = self.mixture_weights(session, names)
        if self.settings.CENTRE and not all_columns_equal(weights):
            classifier.facts["centred"] = True
        return classifier

    def vectors(self, session: int, names: Sequence[str]) -> Tensor:
        prompts, blocks = range(session + 2), range(session + 1)
        if names:
            text = torch.stack([self._prompt_features(prompt, names) for prompt in prompts])
        else:
            text = torch.stack(
                [torch.cat([self.block_features(prompt, block) for block in blocks]) for prompt in prompts]
            )
        weights = self.mixture_weights(session, names)
        return mix_text(text, weights, bool(self.settings.CENTRE) and not all_columns_equal(weights))

    def mixture_weights(self, session: int, names: Sequence[str] = ()) -> Tensor:
        """Return the (K + 1, C) weights of the prompts up to `session`, for all classes seen so far or for `names`."""
        own, device = self.task.sessions[: session + 1], self.clip.each()[0].device
        owner = (find_owners(names, own) if names else session_owners([len(each) for each in own])).to(device)
        inside, outside = torch.zeros(2, session + 1, device=device)
        if self.settings.ENSEMBLE == "coa":
            pairs = [_weights_of(models) for models in self.task.learned[: session + 1]]
            inside, outside = (torch.cat(side).to(device) for side in zip(*pairs, strict=True))
        return weights_of_kind(self.settings.ENSEMBLE, inside, outside, owner)

    def results(self) -> dict[str, Any]:
        return {}  # results.json has those of all sessions


def _weights_of(models: Models) -> tuple[Tensor, Tensor]:
    """Return the two log-weights of a finished session."""
    weights = models.get(WEIGHTS)
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


@register(TRAINER_REGISTRY)
class ZeroshotCLIPFSCIL(SessionTrainer):
    """Evaluates `ZeroshotSessions`."""

    Model = ZeroshotSessions
    reads_section = False


@register(TRAINER_REGISTRY)
class CoOpFSCIL(SessionTrainer):
    """Trains `CoOpSessions`."""

    Model = CoOpSessions


@register(TRAINER_REGISTRY)
class CoCoAMixFSCIL(SessionTrainer):
    """Trains `CoCoAMixSessions`."""

    Model = CoCoAMixSessions
