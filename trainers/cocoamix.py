"""CoCoA-Mix (ICML 2025): a learned prompt specialised by CoA-loss, mixed with a hand-crafted one by CoA-weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.several import SeveralCLIPs
from cocoamix.images import derive_seed
from cocoamix.losses import make_loss
from cocoamix.mixture import find_owners, share_one_pi
from cocoamix.outclasses import make_outclasses
from cocoamix.prompts import PromptLearner, as_one
from cocoamix.registry import register
from cocoamix.weights import CoAWeights

from . import config
from .folds import FoldTrainer


@register(TRAINER_REGISTRY)
class CoCoAMix(FoldTrainer):
    """One learned prompt (K = 1) beside the hand-crafted one, on one or several backbones."""

    section = "COCOAMIX"

    ensembles = ("coa", "uniform", "none")
    trains_with_template = True
    followed_keys = ("TEMPLATE", "STAGE", "OUT_CLASSES", "CLASS_TOKEN_POSITION")

    _still: tuple[Tensor, Tensor | None] | None = None  # features of a prompt that is not trained in this phase

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        config.check_mix(cfg.TRAINER.COCOAMIX)

    # ------------------------------------------------------------------ building

    def load_backbone(self) -> FrozenCLIP:
        return self.load_several()

    def build_prompts(self) -> None:
        settings = self.settings
        self.loss = make_loss(settings.LOSS, settings.W, settings.GAMMA, settings.Q)
        self._make_learners()
        print(f'Initial context: "{self.learners[0].initial_context}"')
        self.register("prompt_learner", self.prompt_learner, self.cfg.OPTIM)
        self.weights = self.make_weights().to(self.device)
        self.two_stages = settings.ENSEMBLE == "coa" and settings.STAGE == "two"
        self.plan_folds()
        if settings.ENSEMBLE == "coa":
            self.register("coa_weights", self.weights, self._weight_optim())
            self._make_outclasses()
        self.plan_stages()
        self.encode_handmade()
        if self.cfg.MODEL.INIT_WEIGHTS:
            self.load_initial("prompt_learner", self.cfg.MODEL.INIT_WEIGHTS)

    def make_weights(self) -> CoAWeights:
        """Return the weights to learn."""
        return CoAWeights(self.clip.logit_scale, stage=self.settings.STAGE)

    @property
    def context_seed(self) -> int:
        """What a random context is drawn from."""
        return derive_seed(self.seed, "context")

    def make_learner(self, clip: FrozenCLIP, names: Sequence[str], seed: int | None = None) -> PromptLearner:
        settings = self.settings
        return PromptLearner(
            clip,
            names,
            n_ctx=settings.N_CTX,
            ctx_init=config.context_words(settings.CTX_INIT),
            position=settings.CLASS_TOKEN_POSITION,
            seed=self.context_seed if seed is None else seed,
        )

    def _make_learners(self) -> None:
        self.learners = [self.make_learner(clip, self.classnames) for clip in self.backbones]
        self.prompt_learner = as_one(self.learners)

    def _weight_optim(self) -> CfgNode:
        """Return OPTIM with the optimizer and the length of the weights' own."""
        optim = self.cfg.OPTIM.clone()
        optim.defrost()
        optim.NAME, optim.LR = self.settings.WEIGHT_OPTIM, self.settings.WEIGHT_LR
        if self.settings.STAGE == "two":
            # A warm-up spares a random prompt; weights alone would only lose the epoch.
            optim.MAX_EPOCH, optim.WARMUP_EPOCH = self.most_weight_epochs(), 0
            if not self.weight_epochs:
                # No schedule can be laid out over a length that is not known; over the bound, it would hardly begin.
                optim.LR_SCHEDULER, optim.STEPSIZE = "single_step", (-1,)
        return optim

    def choose_outclasses(self) -> list[str]:
        """Return the names of which the learned prompt must be less sure than the hand-crafted one."""
        count, seed = len(self.classnames), derive_seed(self.seed, "out-classes")
        names = make_outclasses(self.settings.OUT_CLASSES, count, self.classnames, seed)
        if names:
            print(f"Out-classes: {len(names)} made-up names ({', '.join(names[:5])}, ...)")
        return names

    def _make_outclasses(self) -> None:
        self.out_names = self.choose_outclasses()
        if not self.out_names:
            return
        self.out_handmade = self.clip.encode_classes(self.out_names, self.templates())
        self.out_learners = [self.make_learner(clip, self.out_names) for clip in self.backbones]
        for mine, theirs in zip(self.out_learners, self.learners, strict=True):
            mine.ctx = theirs.ctx  # the same context before other names

    # ------------------------------------------------------------------ training

    def before_epoch(self) -> None:
        super().before_epoch()
        # In the second stage the prompt stands still, and so do its features.
        if self.phase != "weights":
            self._still = None
        elif self._still is None:
            self._still = self._learned_features()

    def encode_learners(self, learners: Sequence[PromptLearner]) -> Tensor:
        clip = cast(SeveralCLIPs, self.clip)
        return clip.encode_prompts([learner() for learner in learners])

    @torch.no_grad()
    def _learned_features(self) -> tuple[Tensor, Tensor | None]:
        return self.encode_learners(self.learners), self._out_features()

    @torch.no_grad()
    def _out_features(self) -> Tensor | None:
        return self.encode_learners(self.out_learners) if self.settings.ENSEMBLE == "coa" and self.out_names else None

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the loss of the phase. The prompt's loss never reaches the weights, nor theirs the prompt."""
        terms: dict[str, Tensor] = {}
        total: Tensor | float = 0.0
        learners = self.fold_learners if self.phase == "fold" else self.learners
        text = self.encode_learners(learners) if self._still is None else self._still[0]
        special = image_features @ text.t()
        alone = self.clip.logit_scale * special
        if self.phase != "weights":
            prompt_loss, terms = self.loss(alone, labels)
            total = total + prompt_loss
        if self.phase in ("prompt", "fold"):
            return {"loss": cast(Tensor, total), **terms}, alone
        return self._weight_terms(image_features, special.detach(), labels, total, terms), alone

    def other_prompts(self) -> list[Tensor]:
        """Return the (C, embedding) text features of the prompts that stand before the learned one in the mixture."""
        return [self.handmade]

    def _weight_terms(
        self, image_features: Tensor, special: Tensor, labels: Tensor, total: Tensor | float, terms: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Add the losses of the weights, and what the log shows of them."""
        settings = self.settings
        others = [image_features @ text.t() for text in self.other_prompts()]
        mixed = self.weights.in_logits(torch.stack([*others, special]))
        terms["mix"] = F.cross_entropy(mixed, labels)
        if not self.folds:  # else pi^in is fitted to held-out images, and stays
            total = total + settings.W_IN * terms["mix"]
        out = self._out_features() if self._still is None else self._still[1]
        if out is not None:
            sides = torch.stack([image_features @ self.out_handmade.t(), image_features @ out.t()])
            terms["ent"] = self.weights.out_loss(sides, settings.MARGIN)
            total = total + settings.W_OUT * terms["ent"]
        with torch.no_grad():
            terms["acc_mix"] = (mixed.argmax(dim=1) == labels).float().mean() * 100
            # Of a class of the last prompt's own and of another; made on the device, so that a step need not wait.
            pi = self.weights.pi(torch.arange(1, -1, -1, device=self.device) * len(others))[-1]
            terms["pi_in"], terms["pi_out"] = pi[0], pi[1]
        return {"loss": cast(Tensor, total), **terms}

    # ------------------------------------------------------------------ evaluation

    def provenance(self) -> dict[str, Any]:
        told = super().provenance()
        if hasattr(self, "out_names"):
            told["out_classes"] = self.out_names
        return {**told, "templates": list(self.templates())}

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Evaluate with the template, the place of the name and the kind of weights of the training run."""
        before, trained = self.settings, self.learners
        super().follow(settings)
        self.weights.stage = self.settings.STAGE
        if self.settings.CLASS_TOKEN_POSITION != before.CLASS_TOKEN_POSITION:
            self._make_learners()
            for mine, theirs in zip(self.learners, trained, strict=True):
                mine.ctx = theirs.ctx
            self._models["prompt_learner"] = self.prompt_learner

    def text_features(self) -> Tensor:
        return self.encode_learners(self.learners)

    def owners(self) -> Tensor:
        """Return 1 for each current class that the prompt was trained on, else 0."""
        domain = self.settings.DOMAIN
        if domain == "in" or self.settings.OUT_CLASSES == "none":
            return torch.ones(len(self.classnames), dtype=torch.long, device=self.device)
        if domain == "out":
            return torch.zeros(len(self.classnames), dtype=torch.long, device=self.device)
        return find_owners(self.classnames, [self.trained_classes]).to(self.device)

    def before_test(self) -> None:
        super().before_test()
        self._owners = self.owners()
        self._mixed = bool((self._owners != self._owners[0]).any())
        if self.settings.ENSEMBLE == "coa":
            pi = self.weights.pi(self._owners)
            temperature = self.temperature()
            self._calibration = 1.0 if temperature is None else 1 / (temperature * self.clip.logit_scale)
            if temperature is not None:
                self.protocol["calibrated"] = True
            shown = float(pi[1].min()), float(pi[1].max())
            print(f"Weight of the learned prompt: {shown[0]:.4f} to {shown[1]:.4f} over the classes")
            self._centred = bool(self.settings.CENTRE) and not share_one_pi(pi)
            if self._centred:
                print("Similarities are centred over the classes (CENTRE)")
                self.protocol["centred"] = True

    def model_inference(self, inputs: Tensor) -> Tensor:
        if self.settings.ENSEMBLE != "coa":
            return super().model_inference(inputs)
        features = self.encode(inputs)
        sides = torch.stack([features @ self.handmade.t(), features @ self._evaluated_features.t()])
        logits = self.weights.logits(sides, self._owners, self._mixed, self._centred)
        return logits if self._calibration == 1 else logits * self._calibration
