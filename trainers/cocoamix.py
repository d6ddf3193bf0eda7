"""CoCoA-Mix (ICML 2025): a learned prompt specialised by CoA-loss, mixed with a hand-crafted one by CoA-weights."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.interface import AnyCLIP
from cocoamix.coa import heldout
from cocoamix.coa.convergence import epochs_within
from cocoamix.coa.folds import Folds
from cocoamix.coa.head import MixtureHead
from cocoamix.coa.losses import make_loss
from cocoamix.coa.mixture import find_owners
from cocoamix.coa.out_classes import make_outclasses
from cocoamix.coa.stages import SecondStage, Stages
from cocoamix.coa.weights import CoAWeights
from cocoamix.config import keys
from cocoamix.errors import UserError
from cocoamix.features.images import ImageItems, image_name
from cocoamix.io import checkpoints
from cocoamix.io.screen import detail
from cocoamix.prompts.context import PromptLearner, as_one
from cocoamix.registry import register
from cocoamix.run import protocol
from cocoamix.run.backbone import load_several
from cocoamix.run.checkpointer import trained
from cocoamix.run.loaders import loader_over
from cocoamix.seeding import derive_seed

from .base import CLIPTrainer

PROMPT, WEIGHTS, FOLD = "prompt_learner", "coa_weights", "fold_prompt"  # the models; that of a fold for a while
_MODELS = {"prompt": [PROMPT], "fold": [FOLD], "weights": [WEIGHTS], "both": [PROMPT, WEIGHTS]}


@register(TRAINER_REGISTRY)
class CoCoAMix(CLIPTrainer):
    """One learned prompt (K = 1) beside the hand-crafted one, on one or several backbones."""

    section = "COCOAMIX"

    ensembles = ("coa", "uniform", "none")
    trains_with_template = True

    stages: Stages
    folds: Folds
    out_names: Sequence[str] = ()  # made-up classes; only a training has them
    _still: tuple[Tensor, Tensor | None] | None = None  # features of a prompt that is not trained in this phase

    def check_cfg(self, cfg: CfgNode) -> None:
        super().check_cfg(cfg)
        keys.check_mix(cfg.TRAINER.COCOAMIX)
        keys.check_heldout(cfg)

    # ------------------------------------------------------------------ building

    def load_backbone(self) -> AnyCLIP:
        return load_several(self.cfg, self.settings, self.device)

    def build_prompts(self) -> None:
        settings = self.settings
        self._make_learners()
        detail(f'Initial context: "{self.learners[0].initial_context}"')
        self.register(PROMPT, self.prompt_learner, self.cfg.OPTIM)
        self.weights = self.make_weights().to(self.device)
        self._deal_folds()
        self._plan_stages()
        if settings.ENSEMBLE == "coa":
            self.register(WEIGHTS, self.weights, self._weight_optim())
        if self.cfg.MODEL.INIT_WEIGHTS:
            self.load_initial(PROMPT, self.cfg.MODEL.INIT_WEIGHTS)

    def make_weights(self) -> CoAWeights:
        """Return the weights to learn."""
        return CoAWeights(self.clip.logit_scale, stage=self.settings.STAGE)

    @property
    def context_seed(self) -> int:
        """What a random context is drawn from."""
        return derive_seed(self.seed, "context")

    def make_learner(self, clip: FrozenCLIP, names: Sequence[str], seed: int | None = None) -> PromptLearner:
        """Return a prompt before some names. seed: of a random context, if not the final prompt's."""
        settings = self.settings
        return PromptLearner(
            clip,
            names,
            n_ctx=settings.N_CTX,
            ctx_init=keys.context_words(settings.CTX_INIT),
            position=settings.CLASS_TOKEN_POSITION,
            seed=self.context_seed if seed is None else seed,
        )

    def _make_learners(self) -> None:
        self.learners = [self.make_learner(clip, self.classnames) for clip in self.clip.each()]
        self.prompt_learner = as_one(self.learners)

    def encode_learners(self, learners: Sequence[PromptLearner]) -> Tensor:
        """Return the (C, embedding) text features of the prompts of each backbone."""
        return self.clip.encode_each([learner() for learner in learners])

    # ------------------------------------------------------------------ which epoch does what

    @property
    def two_stages(self) -> bool:
        """Whether the weights are learned after the prompt."""
        return self.settings.ENSEMBLE == "coa" and self.settings.STAGE == "two"

    @property
    def weight_epochs(self) -> int:
        """How long the second stage is; 0 until the weights stand still."""
        return int(self.settings.WEIGHT_EPOCHS)

    def most_weight_epochs(self) -> int:
        """Return how long the second stage is at most."""
        return self.weight_epochs or epochs_within(self.settings.WEIGHT_MAX_STEPS, len(self.train_loader_x))

    def _plan_stages(self) -> None:
        """Lay out the epochs."""
        settings = self.settings
        # Once pi^in is fitted only pi^out is left to learn, and without out-classes there is none.
        idle = bool(self.folds) and settings.OUT_CLASSES == "none"
        self.stages = Stages(
            learns_weights=settings.ENSEMBLE == "coa",
            two=self.two_stages,
            first=int(self.cfg.OPTIM.MAX_EPOCH),
            folds=self.folds.count,
            weights=self.weight_epochs,
            most=0 if idle else self.most_weight_epochs(),
        )
        self.second = SecondStage(self.stages, self.learned_pi(), settings.WEIGHT_TOLERANCE, settings.WEIGHT_MAX_STEPS)
        if self.two_stages:
            self.max_epoch = self.stages.total

    def _weight_optim(self) -> CfgNode:
        """Return OPTIM with the optimizer and the length of the weights' own."""
        optim = self.cfg.OPTIM.clone()
        optim.defrost()
        optim.NAME, optim.LR = self.settings.WEIGHT_OPTIM, self.settings.WEIGHT_LR
        optim.STAGED_LR = False  # WEIGHT_LR is the rate of all of them
        if self.settings.STAGE == "two":
            # A warm-up spares a random prompt; weights alone would only lose the epoch.
            optim.MAX_EPOCH, optim.WARMUP_EPOCH = self.most_weight_epochs(), 0
            if not self.weight_epochs:
                # No schedule can be laid out over a length that is not known; over the bound, it would hardly begin.
                optim.LR_SCHEDULER, optim.STEPSIZE = "single_step", (-1,)
        return optim

    @property
    def phase(self) -> str:
        """What is trained now: the prompt, that of a fold, the weights, or the prompt and the weights."""
        return self.stages.phase(self.epoch)

    def describe_epochs(self) -> str:
        if not self.two_stages:
            return super().describe_epochs()
        stages = self.stages
        folds = f", {stages.folds} folds of {stages.first}" if stages.folds else ""
        weights = f"{'' if stages.weights else 'at most '}{stages.most} for the weights"
        return f"{stages.first} epochs{folds}, {weights}, batches of {self.train_loader_x.batch_size}"

    def update_lr(self, names: Any = None) -> None:
        super().update_lr(names or _MODELS[self.phase])

    def get_current_lr(self, names: Any = None) -> float:
        return float(super().get_current_lr(names or _MODELS[self.phase]))

    def view_of(self, epoch: int) -> int:
        return super().view_of(self.stages.view(epoch))

    def count_views(self) -> int:
        return min(super().count_views(), self.stages.views)

    # ------------------------------------------------------------------ training

    def prepare_training(self) -> None:
        settings = self.settings
        self.loss = make_loss(settings.LOSS, settings.W, settings.GAMMA, settings.Q)
        if settings.ENSEMBLE == "coa":
            self._make_outclasses()

    def choose_outclasses(self) -> list[str]:
        """Return the names of which the learned prompt must be less sure than the hand-crafted one."""
        count, seed = len(self.classnames), derive_seed(self.seed, "out-classes")
        names = make_outclasses(self.settings.OUT_CLASSES, count, self.classnames, seed)
        if names:
            detail(f"Out-classes: {len(names)} made-up names ({', '.join(names[:5])}, ...)")
        return names

    def _make_outclasses(self) -> None:
        self.out_names = self.choose_outclasses()
        if not self.out_names:
            return
        self.out_general = self.clip.encode_classes(self.out_names, self.templates())
        self.out_learners = [self.make_learner(clip, self.out_names) for clip in self.clip.each()]
        for mine, theirs in zip(self.out_learners, self.learners, strict=True):
            mine.ctx = theirs.ctx  # the same context before other names

    def before_train(self) -> None:
        settings = self.settings
        if settings.CALIBRATED and settings.WEIGHT_FIT != "heldout":
            raise UserError(
                "TRAINER.COCOAMIX.CALIBRATED is True, but no temperature is fitted where WEIGHT_FIT is "
                f"{settings.WEIGHT_FIT}: use WEIGHT_FIT heldout, or CALIBRATED False."
            )
        if settings.CALIBRATED and not self.folds:
            raise self._no_temperature()  # now, not in the evaluation after the training
        super().before_train()

    def before_epoch(self) -> None:
        if self.phase == "fold" and FOLD not in self._models:
            self._begin_fold(self.stages.fold(self.epoch))
        self._epoch_began = time.monotonic()
        super().before_epoch()
        # In the second stage the prompt stands still, and so do its features.
        if self.phase != "weights":
            self._still = None
        elif self._still is None:
            self._still = self._learned_features()

    def after_epoch(self) -> None:
        if self.phase == "weights" and self.second.after_epoch(
            self.epoch, self.epoch + 1 == self.max_epoch, self.learned_pi(), self.num_batches
        ):
            self.max_epoch = self.epoch + 1
        if self.phase == "fold":
            self.checkpointer.refuse_non_finite(self.epoch + 1, self.cfg.OPTIM.LR)
            self.folds.seconds += time.monotonic() - self._epoch_began
            if self.stages.ends_fold(self.epoch):
                self._end_fold()
        super().after_epoch()

    @torch.no_grad()
    def _learned_features(self) -> tuple[Tensor, Tensor | None]:
        return self.encode_learners(self.learners), self._out_features()

    @torch.no_grad()
    def _out_features(self) -> Tensor | None:
        return self.encode_learners(self.out_learners) if self.out_names else None

    @torch.no_grad()
    def learned_pi(self) -> list[float]:
        """Return the weight of the learned prompt, of several the last, for its own classes and for others."""
        count = len(self.weights.relative()[0])
        # Without out-classes every class takes pi^in.
        other = count if self.settings.OUT_CLASSES == "none" else 0
        pi = self.weights.pi(torch.tensor([count, other], device=self.device))[-1]
        return [float(share) for share in pi]

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
        return [self.general_features()]

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
            sides = torch.stack([image_features @ self.out_general.t(), image_features @ out.t()])
            terms["ent"] = self.weights.out_loss(sides, settings.MARGIN)
            total = total + settings.W_OUT * terms["ent"]
        with torch.no_grad():
            terms["acc_mix"] = (mixed.argmax(dim=1) == labels).float().mean() * 100
            # Of a class of the last prompt's own and of another; made on the device, so that a step need not wait.
            pi = self.weights.pi(torch.arange(1, -1, -1, device=self.device) * len(others))[-1]
            terms["pi_in"], terms["pi_out"] = pi[0], pi[1]
        return {"loss": cast(Tensor, total), **terms}

    # ------------------------------------------------------------------ folds: weights fitted to held-out images

    def _deal_folds(self) -> None:
        """Deal the training images into folds, where WEIGHT_FIT is heldout and every class has two images."""
        wanted = self.two_stages and self.settings.WEIGHT_FIT == "heldout"
        self._whole = self.train_loader_x
        items = cast(ImageItems, self._whole.dataset).items
        self.folds = Folds([int(item.label) for item in items], derive_seed(self.seed, "folds"), wanted)
        if not wanted:
            return
        if self.folds.fitted:
            why = self.folds.fitted["why"]
            print(f"WEIGHT_FIT is heldout, but {why}: the weights are fitted to the training images (train)")
        else:
            self.protocol["splits"]["folds"] = protocol.digest(
                [[image_name(item.impath), fold] for item, fold in zip(items, self.folds.fold_of, strict=True)]
            )
        self.protocol["folds"] = self.folds.count

    def encoded_together(self) -> int:
        """A fold may be smaller than a batch. Its images are encoded as in the first stage all the same."""
        return min(int(self._whole.batch_size or 1), len(cast(ImageItems, self._whole.dataset))) if self.folds else 0

    def _begin_fold(self, fold: int) -> None:
        """Tune a prompt from now on as the final one was, on the images that the fold does not leave out."""
        items = cast(ImageItems, self._whole.dataset).items
        kept, count = self.folds.kept(items, fold), self.folds.count
        print(f"** Fold {fold + 1} of {count}: {len(kept):,} images, {len(items) - len(kept):,} are left out **")
        self.train_loader_x = loader_over(self.cfg, self._whole, kept, train=True, seed=self.seed)
        self.fold_learners = self._make_fold_learners(fold)
        self.register(FOLD, as_one(self.fold_learners), self.cfg.OPTIM)

    def _make_fold_learners(self, fold: int) -> list[PromptLearner]:
        seed = derive_seed(self.seed, "context", "fold", fold)
        return [self.make_learner(clip, self.classnames, seed) for clip in self.clip.each()]

    def _end_fold(self) -> None:
        """Keep what the fold learned, and after the last one fit the weight."""
        last = self.folds.keep(trained(self._models[FOLD]))
        self.forget(FOLD)
        self.train_loader_x = self._whole
        if last:
            self._fit()

    @torch.no_grad()
    def _fit(self) -> None:
        """Fit pi^in and the temperature to the similarities of each image under the prompt that did not see it."""
        began = time.monotonic()
        features, labels, indices = self._plain_features()
        special = torch.empty(len(labels), len(self.classnames), device=self.device)
        for fold, state in enumerate(self.folds.states):
            learners = self._make_fold_learners(fold)
            checkpoints.load_into(as_one(learners), state, f"fold {fold + 1}")
            rows = torch.tensor([self.folds.fold_of[index] == fold for index in indices], device=self.device)
            special[rows] = features[rows] @ self.encode_learners(learners).t()
        found = heldout.fit(features @ self.general_features().t(), special, labels, self.clip.logit_scale)
        self.weights.inside.fill_(math.log(found.pi_in / (1 - found.pi_in)))
        self.second.follow(self.learned_pi())
        seconds = round(self.folds.seconds + time.monotonic() - began, 3)
        self.folds.fitted = {"folds": self.folds.count, **found.plain(), "seconds": seconds}
        print(
            f"Held-out fit over {found.images:,} images: pi^in {found.pi_in:.4f}, cross-entropy {found.nll:.4f}; "
            f"{found.calibrated_nll:.4f} at the temperature {found.temperature:.5f}"
        )

    def _plain_features(self) -> tuple[Tensor, Tensor, list[int]]:
        """Return features and labels of the training images as an evaluation shows them, and their indices.

        The loader itself tells which images it read: what could not be read in an epoch may be repaired by now.
        """
        items = cast(ImageItems, self._whole.dataset).items
        # In batches of the training's size, which a resume keeps. That of tests is free to change, and bits with it.
        size = self._whole.batch_size
        loader = loader_over(self.cfg, self.test_loader, items, train=False, seed=self.seed, batch_size=size)
        found = self.images.batches(loader, "train", self.device, self.encoded_together())
        batches = [(self.encode(inputs), labels, indices) for inputs, labels, indices in found]
        features, labels, indices = (torch.cat(side) for side in zip(*batches, strict=True))
        return features, labels, indices.tolist()

    def fitted(self) -> dict[str, Any]:
        """Return what was fitted to held-out images, of the loaded checkpoint or of this training."""
        return dict((self.loaded_from.get("heldout") if self.loaded_from else self.folds.fitted) or {})

    def _temperature(self) -> float | None:
        """Return the fitted temperature of the mixture where an evaluation is to use it."""
        if not self.settings.CALIBRATED:
            return None
        found = self.fitted()
        if "temperature" not in found:
            raise self._no_temperature()
        return float(found["temperature"])

    def _no_temperature(self) -> UserError:
        """Return what is said where CALIBRATED finds no temperature to use."""
        told = self.loaded_from.get("settings") or {}
        if "why" in self.fitted():
            reason = f"no temperature is fitted, because {self.fitted()['why']}. Use CALIBRATED False."
        elif told.get("TRAINER.COCOAMIX.WEIGHT_FIT") == "heldout":
            reason = (
                f"the checkpoint of epoch {self.trained_epochs} is from before the fit of the temperature, which comes "
                "after all folds. Use CALIBRATED False, or a later checkpoint."
            )
        else:
            reason = (
                "the model was not trained with WEIGHT_FIT heldout, which fits the temperature. "
                "Use CALIBRATED False, or train with it."
            )
        return UserError(f"TRAINER.COCOAMIX.CALIBRATED is True, but {reason}")

    # ------------------------------------------------------------------ evaluation

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
        if self.settings.ENSEMBLE != "coa":
            return
        temperature = self._temperature()
        self.head = MixtureHead(self.weights, self.owners(), bool(self.settings.CENTRE), temperature)
        if temperature is not None:
            self.protocol["calibrated"] = True
        low, high = (float(share) for share in self.head.pi[1].aminmax())
        print(f"Weight of the learned prompt: {low:.4f} to {high:.4f} over the classes")
        if self.head.centred:
            print("Similarities are centred over the classes (CENTRE)")
            self.protocol["centred"] = True

    def feature_logits(self, features: Tensor) -> Tensor:
        if self.settings.ENSEMBLE != "coa":
            return super().feature_logits(features)
        return self.head.logits(features @ self.general_features().t(), features @ self._evaluated_features.t())

    # ------------------------------------------------------------------ saving, resuming, loading

    def saved_models(self) -> list[str]:
        return [name for name in super().saved_models() if name != FOLD]

    def provenance(self) -> dict[str, Any]:
        told = super().provenance()
        if self.second.ended is not None:
            told["second_stage"] = self.second.ended
        if self.folds.fitted is not None:
            told["heldout"] = self.folds.fitted
        if self.settings.ENSEMBLE == "coa":
            told["out_classes"] = list(self.out_names)
        return {**told, "templates": list(self.templates())}

    def resume_state(self, epochs: int) -> dict[str, Any]:
        state = super().resume_state(epochs)
        if self.two_stages:
            state["second_stage"] = self.second.state()
        if self.folds:
            state["heldout"] = self.folds.state()
        return state

    def prepare_for(self, state: Mapping[str, Any]) -> None:
        """Build the prompt of the fold that a run was killed in."""
        if FOLD in state["models"] and self.folds:
            self._begin_fold(self.stages.fold(int(state["epoch"])))

    def take_up(self, state: Mapping[str, Any]) -> None:
        if self.two_stages:
            self.second.restore(state["second_stage"])
            if self.second.ended is not None:
                self.max_epoch = int(state["epoch"])
        if self.folds:
            self.folds.restore(state["heldout"])

    def epochs_of(self, name: str, done: int) -> int:
        return self.stages.epochs_of(name == WEIGHTS, done)

    def take_up_origin(self, told: Mapping[str, Any], done: int) -> None:
        """Checkpoints alone tell whether the second stage has ended, not where a round of it stands: one begins."""
        if not self.two_stages:
            return
        self.second.follow(self.learned_pi())
        self.second.ended = told.get("second_stage")
        if self.second.ended:
            self.max_epoch = done
        if self.folds and done > self.stages.first:
            self.folds.fitted = told.get("heldout")
            if done < self.max_epoch:
                raise UserError(
                    f"Checkpoints of {done} epochs are here without resume.pth, which alone has the prompts of the "
                    "folds (TRAINER.COCOAMIX.WEIGHT_FIT heldout). Restore it, or choose another --output-dir."
                )

    def follow(self, settings: Mapping[str, Any]) -> None:
        """Evaluate with the template, the place of the name and the kind of weights of the training run."""
        before, learners = self.settings, self.learners
        super().follow(settings)
        self.weights.stage = self.settings.STAGE
        if self.settings.CLASS_TOKEN_POSITION != before.CLASS_TOKEN_POSITION:
            self._make_learners()
            for mine, theirs in zip(self.learners, learners, strict=True):
                mine.ctx = theirs.ctx
            self._models[PROMPT] = self.prompt_learner
        # Tell of the folds that the checkpoint was trained with, not of those that this run would deal.
        told = self.loaded_from.get("protocol") or {}
        self.protocol.pop("folds", None)
        self.protocol["splits"].pop("folds", None)
        if "folds" in told:
            self.protocol["folds"] = told["folds"]
            self.protocol["splits"]["folds"] = told["splits"].get("folds")

    def more_results(self) -> dict[str, Any]:
        """Add the learned weights and how they were learned: of the loaded checkpoint, or of this training."""
        told = super().more_results()
        if self.settings.ENSEMBLE == "coa":
            pi_in, pi_out = self.learned_pi()
            told["weights"] = {"pi_in": pi_in, "pi_out": pi_out}
        ended = self.loaded_from.get("second_stage") if self.loaded_from else self.second.ended
        if ended:
            told["second_stage"] = ended
        if self.fitted():
            told["heldout"] = self.fitted()
        return told
