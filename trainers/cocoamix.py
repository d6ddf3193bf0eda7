"""CoCoA-Mix (Hong et al., ICML 2025): a prompt learned with CoA-loss, mixed with a hand-crafted one by CoA-weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.ensemble import SeveralCLIPs
from cocoamix.coa.convergence import SecondStage, epochs_within
from cocoamix.coa.head import MixtureHead
from cocoamix.coa.losses import make_loss
from cocoamix.coa.mixture import mix_equally, owners_in
from cocoamix.coa.out_classes import make_outclasses
from cocoamix.coa.weights import CoAWeights
from cocoamix.config import keys
from cocoamix.model import Classifier, Losses, Matrices, Phase, PromptModel, Task
from cocoamix.prompts.context import PromptLearner, as_one, share
from cocoamix.prompts.hand_crafted import HandCraftedPrompt
from cocoamix.registry import register
from cocoamix.seeding import derive_seed
from cocoamix.trainer import CLIPTrainer

from .heldout import HeldOutWeights

PROMPT, WEIGHTS = "prompt_learner", "coa_weights"


class CoCoAMixModel(PromptModel):
    """One learned prompt (K = 1) next to the hand-crafted one, on one or several backbones."""

    section = "COCOAMIX"
    ensembles = ("coa", "uniform", "none")
    trains_with_template = True
    several = True
    clip: SeveralCLIPs
    hand_crafted: HandCraftedPrompt

    def __init__(self, clip: SeveralCLIPs, task: Task, settings: CfgNode, seed: int) -> None:
        super().__init__(clip, task, settings, seed)
        self.hand_crafted = HandCraftedPrompt(clip, settings.TEMPLATE, task.dataset)
        self.learners = [self.make_learner(member, self.classnames) for member in clip.each()]
        self.parts[PROMPT] = as_one(self.learners)
        self.notes.append(f'Initial context: "{self.learners[0].initial_context}"')
        self.weights = self.make_weights()
        if settings.ENSEMBLE == "coa":
            self.parts[WEIGHTS] = self.weights
        self.prompt_loss = make_loss(settings.LOSS, settings.W, settings.GAMMA, settings.Q)
        self.out_names: list[str] | None = None  # not chosen yet; an evaluation needs none
        self.heldout = HeldOutWeights(self)
        self._fixed: tuple[Tensor, Tensor | None] | None = None  # text features, while only the weights are trained
        self.restart()

    @classmethod
    def check(cls, cfg: CfgNode) -> None:
        keys.check_mix(cfg.TRAINER.COCOAMIX)
        keys.check_heldout(cfg)

    # ------------------------------------------------------------------ prompts, weights and out-classes

    @property
    def context_seed(self) -> int:
        """Seed of a random initial context."""
        return derive_seed(self.seed, "context")

    def make_learner(self, clip: FrozenCLIP, names: Sequence[str], seed: int | None = None) -> PromptLearner:
        """Return a prompt learner for `names`. By default, `context_seed` seeds a random initial context."""
        settings = self.settings
        return PromptLearner(
            clip,
            names,
            n_ctx=settings.N_CTX,
            ctx_init=keys.context_words(settings.CTX_INIT),
            position=settings.CLASS_TOKEN_POSITION,
            seed=self.context_seed if seed is None else seed,
        )

    def learners_of(self, names: Sequence[str]) -> list[PromptLearner]:
        """Return the learned prompt for other classes."""
        learners = [self.make_learner(member, names) for member in self.clip.each()]
        for learner, trained in zip(learners, self.learners, strict=True):
            share(learner, trained)
        return learners

    def encode_learners(self, learners: Sequence[PromptLearner]) -> Tensor:
        """Return the (C, embedding) text features of one prompt learner per backbone."""
        return self.clip.encode_each([learner() for learner in learners])

    def make_weights(self) -> CoAWeights:
        """Return the CoA-weights to train."""
        return CoAWeights(self.clip.logit_scale, stage=self.settings.STAGE).to(self.clip.each()[0].device)

    def other_prompts(self) -> list[Tensor]:
        """Return the (C, embedding) text features of prompts 0 to K - 1 of the mixture, all but the one in training."""
        return [self.hand_crafted.of(self.classnames)]

    def choose_outclasses(self) -> list[str]:
        """Return the names of the out-classes for L_Ent."""
        count, seed = len(self.classnames), derive_seed(self.seed, "out-classes")
        names = make_outclasses(self.settings.OUT_CLASSES, count, self.classnames, seed)
        if names:
            self.notes.append(f"Out-classes: {len(names)} generated class names ({', '.join(names[:5])}, ...)")
        return names

    def make_outclasses(self) -> None:
        """Choose the out-classes, once, and prepare their prompts."""
        if self.out_names is not None:
            return
        self.out_names = self.choose_outclasses()
        if self.out_names:
            self.out_hand_crafted = self.clip.encode_classes(self.out_names, self.templates)
            self.out_learners = self.learners_of(self.out_names)  # they share the context

    # ------------------------------------------------------------------ phases

    @property
    def two_stages(self) -> bool:
        """Whether the weights are trained after the prompt."""
        return bool(self.settings.ENSEMBLE == "coa" and self.settings.STAGE == "two")

    @property
    def weight_epochs(self) -> int:
        """Epochs of the second stage; 0 to run until convergence."""
        return int(self.settings.WEIGHT_EPOCHS)

    def phases(self, optim: CfgNode, steps: int) -> list[Phase]:
        epochs, weights = optim.MAX_EPOCH, optim.clone()
        weights.defrost()
        weights.NAME, weights.LR = self.settings.WEIGHT_OPTIM, self.settings.WEIGHT_LR
        weights.STAGED_LR = False  # WEIGHT_LR is the rate of all weights
        if self.settings.ENSEMBLE != "coa":
            return [Phase("prompt", epochs, {PROMPT: optim})]
        if not self.two_stages:
            return [Phase("both", epochs, {PROMPT: optim, WEIGHTS: weights})]
        known = self.weight_epochs
        most = known or epochs_within(self.settings.WEIGHT_MAX_STEPS, steps)
        # A warm-up protects a random prompt; for the weights it would only cost an epoch.
        weights.MAX_EPOCH, weights.WARMUP_EPOCH = most, 0
        if not known:
            # The rate is constant, because a schedule needs the length, and only its upper bound is known.
            weights.LR_SCHEDULER, weights.STEPSIZE = "single_step", (-1,)
        # A second stage of unknown length, like folds, reuses the augmentations of the first, so nothing is encoded.
        views = {"first_view": epochs} if known else {"views": epochs}
        stages = [Phase("prompt", epochs, {PROMPT: optim}), *self.heldout.phases(epochs, optim)]
        # With folds, pi^in is fitted, so the second stage trains only pi^out, which needs out-classes.
        idle = bool(self.heldout) and self.settings.OUT_CLASSES == "none"
        return stages if idle else [*stages, Phase("weights", most, {WEIGHTS: weights}, **views)]

    def restart(self) -> None:
        """Follow pi from here on."""
        self.second = SecondStage(self.learned_pi(), self.weight_epochs, self.settings.WEIGHT_TOLERANCE)

    def begin(self, phase: Phase) -> None:
        self._fixed = None
        if phase.name in ("prompt", "both"):
            self.heldout.check()
        if self.settings.ENSEMBLE == "coa":
            self.make_outclasses()
        if phase.name == "fold":
            self.heldout.begin(phase)

    def ends(self, phase: Phase, epoch: int, steps: int) -> bool:
        last = super().ends(phase, epoch, steps)
        if phase.name == "weights" and self.second.after_epoch(epoch, last, self.learned_pi(), steps):
            self.notes.append(self.second.describe())
            return True
        return last

    def end(self, phase: Phase, images: Callable[[], tuple[Tensor, Tensor, Tensor]]) -> None:
        if phase.name == "fold" and self.heldout.end(phase, images):
            self.restart()

    # ------------------------------------------------------------------ the loss

    def loss(self, inputs: Tensor, labels: Tensor, training: Collection[str] = ()) -> Losses:
        """Return L_prompt, Eq. (10), for the prompt, and the losses of the weights, Eqs. (13)-(15).

        L_prompt never reaches the weights, and their losses never reach the prompt.
        """
        trained = set(training or self.parts)
        if trained != {WEIGHTS}:
            self._fixed = None
        elif self._fixed is None:
            self._fixed = self._text_without_gradients()
        text = self._fixed[0] if self._fixed else self.encode_learners(self.heldout.learners or self.learners)
        learned = inputs @ text.t()
        losses = Losses(inputs.new_zeros(()), self.clip.logit_scale * learned)
        if trained != {WEIGHTS}:
            losses.total, losses.terms = self.prompt_loss(losses.logits, labels)
        if WEIGHTS in trained:
            self._add_weight_terms(losses, inputs, learned.detach(), labels)
        return losses

    def _add_weight_terms(self, losses: Losses, inputs: Tensor, learned: Tensor, labels: Tensor) -> None:
        """Add the losses of the weights to the total, and values for the log."""
        self.make_outclasses()
        settings, terms = self.settings, losses.terms
        others = [inputs @ text.t() for text in self.other_prompts()]
        mixed = self.weights.in_logits(torch.stack([*others, learned]))
        terms["mix"] = F.cross_entropy(mixed, labels)  # L_In, Eq. (13)
        if not self.heldout:  # with folds, pi^in is fitted to held-out images and not trained
            losses.total = losses.total + settings.W_IN * terms["mix"]
        out = self._fixed[1] if self._fixed else self._out_features()
        if out is not None:
            sides = torch.stack([inputs @ self.out_hand_crafted.t(), inputs @ out.t()])
            terms["ent"] = self.weights.out_loss(sides, settings.MARGIN)  # L_Ent, Eqs. (14) and (15)
            losses.total = losses.total + settings.W_OUT * terms["ent"]
        with torch.no_grad():
            terms["acc_mix"] = (mixed.argmax(dim=1) == labels).float().mean() * 100
            # Owners of an in-class and an out-class of the last prompt, made on the device to avoid a synchronisation.
            pi = self.weights.pi(torch.arange(1, -1, -1, device=inputs.device) * len(others))[-1]
            terms["pi_in"], terms["pi_out"] = pi[0], pi[1]

    @torch.no_grad()
    def _text_without_gradients(self) -> tuple[Tensor, Tensor | None]:
        self.make_outclasses()
        return self.encode_learners(self.learners), self._out_features()

    @torch.no_grad()
    def _out_features(self) -> Tensor | None:
        return self.encode_learners(self.out_learners) if self.out_names else None

    # ------------------------------------------------------------------ the mixture

    @torch.no_grad()
    def learned_pi(self) -> list[float]:
        """Return pi^in and pi^out of the learned prompt; with several, of the last one."""
        inside = self.weights.relative()[0]
        # Without out-classes, pi^in applies to every class.
        other = len(inside) if self.settings.OUT_CLASSES == "none" else 0
        pi = self.weights.pi(torch.tensor([len(inside), other], device=inside.device))[-1]
        return [float(value) for value in pi]

    @torch.no_grad()
    def classifier(self, classnames: Sequence[str] | None = None, synsets: Sequence[str] = ()) -> Classifier:
        names = self.classnames if classnames is None else list(classnames)
        text = self.encode_learners(self.learners if names == self.classnames else self.learners_of(names))
        prompts = torch.stack([self.hand_crafted.of(names), text])
        if self.settings.ENSEMBLE != "coa":
            used = prompts if self.settings.ENSEMBLE == "uniform" else prompts[1:]
            matrices = Matrices(self.clip.logit_scale * used.mean(dim=0))
            return Classifier(names, partial(self._equal_logits, used.flip(0)), self.encode, matrices)
        domain = "in" if self.settings.OUT_CLASSES == "none" else self.settings.DOMAIN
        owner = owners_in(domain, names, self.classnames).to(text.device)
        head = MixtureHead(self.weights, owner, bool(self.settings.CENTRE), self.heldout.temperature())
        return Classifier(
            names,
            lambda features: head.logits(*(features @ prompt.t() for prompt in prompts)),
            self.encode,
            Matrices(head.matrix(prompts)),
            head.facts(),
            head.notes(),
        )

    def _equal_logits(self, prompts: Tensor, features: Tensor) -> Tensor:
        return mix_equally(*(self.logits(features, prompt) for prompt in prompts))

    # ------------------------------------------------------------------ checkpoints and results

    def state(self) -> dict[str, Any]:
        return {**({"second_stage": self.second.state()} if self.two_stages else {}), **self.heldout.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        if self.two_stages:
            self.second.restore(state["second_stage"])
        self.heldout.restore(state)

    def _outcomes(self) -> dict[str, Any]:
        outcomes = {"second_stage": self.second.ended, "heldout": self.heldout.fitted}
        return {key: value for key, value in outcomes.items() if value}

    def facts(self) -> dict[str, Any]:
        out = {"out_classes": list(self.out_names or ())} if self.settings.ENSEMBLE == "coa" else {}
        return {**self._outcomes(), **out, "templates": list(self.templates)}

    def adopt(self, facts: Mapping[str, Any]) -> None:
        self.restart()
        self.second.ended, self.heldout.fitted = facts.get("second_stage"), facts.get("heldout")

    def protocol(self) -> dict[str, Any]:
        return self.heldout.protocol()

    def results(self) -> dict[str, Any]:
        pi_in, pi_out = self.learned_pi()
        learned = {"weights": {"pi_in": pi_in, "pi_out": pi_out}} if self.settings.ENSEMBLE == "coa" else {}
        return {**learned, **self._outcomes()}


@register(TRAINER_REGISTRY)
class CoCoAMix(CLIPTrainer):
    """Trains `CoCoAMixModel`."""

    Model = CoCoAMixModel
