"""CoCoA-Mix (Hong et al., ICML 2025): a prompt learned with CoA-loss, mixed with a hand-crafted one by CoA-weights."""

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
from cocoamix.run.checkpointer import parameters_of
from cocoamix.run.loaders import loader_over
from cocoamix.seeding import derive_seed

from .base import CLIPTrainer

# Names of the models. FOLD exists only during a fold.
PROMPT, WEIGHTS, FOLD = "prompt_learner", "coa_weights", "fold_prompt"
_MODELS = {"prompt": [PROMPT], "fold": [FOLD], "weights": [WEIGHTS], "both": [PROMPT, WEIGHTS]}


@register(TRAINER_REGISTRY)
class CoCoAMix(CLIPTrainer):
    """One learned prompt (K = 1) next to the hand-crafted one, on one or several backbones."""

    section = "COCOAMIX"

    ensembles = ("coa", "uniform", "none")
    trains_with_template = True

    stages: Stages
    folds: Folds
    out_names: Sequence[str] = ()  # names of the out-classes; empty in an evaluation
    _frozen_text: tuple[Tensor, Tensor | None] | None = None  # text features, while the prompt is not trained

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
        self._make_folds()
        self._plan_stages()
        if settings.ENSEMBLE == "coa":
            self.register(WEIGHTS, self.weights, self._weight_optim())
        if self.cfg.MODEL.INIT_WEIGHTS:
            self.load_initial_weights(PROMPT, self.cfg.MODEL.INIT_WEIGHTS)

    def make_weights(self) -> CoAWeights:
        """Return the CoA-weights to train."""
        return CoAWeights(self.clip.logit_scale, stage=self.settings.STAGE)

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

    def _make_learners(self) -> None:
        self.learners = [self.make_learner(clip, self.classnames) for clip in self.clip.each()]
        self.prompt_learner = as_one(self.learners)

    def encode_learners(self, learners: Sequence[PromptLearner]) -> Tensor:
        """Return the (C, embedding) text features of one prompt learner per backbone."""
        return self.clip.encode_each([learner() for learner in learners])

    # ------------------------------------------------------------------ the schedule

    @property
    def two_stages(self) -> bool:
        """Whether the weights are trained after the prompt."""
        return self.settings.ENSEMBLE == "coa" and self.settings.STAGE == "two"

    @property
    def weight_epochs(self) -> int:
        """Epochs of the second stage; 0 to run until convergence."""
        return int(self.settings.WEIGHT_EPOCHS)

    def max_weight_epochs(self) -> int:
        """Return the largest number of epochs of the second stage."""
        return self.weight_epochs or epochs_within(self.settings.WEIGHT_MAX_STEPS, len(self.train_loader_x))

    def _plan_stages(self) -> None:
        """Set `stages`, `second` and `max_epoch`."""
        settings = self.settings
        # With folds, pi^in is fitted, so the second stage trains only pi^out, which needs out-classes.
        idle = bool(self.folds) and settings.OUT_CLASSES == "none"
        self.stages = Stages(
            learns_weights=settings.ENSEMBLE == "coa",
            two=self.two_stages,
            first=int(self.cfg.OPTIM.MAX_EPOCH),
            folds=self.folds.count,
            weights=self.weight_epochs,
            max_weights=0 if idle else self.max_weight_epochs(),
        )
        self.second = SecondStage(self.stages, self.learned_pi(), settings.WEIGHT_TOLERANCE, settings.WEIGHT_MAX_STEPS)
        if self.two_stages:
            self.max_epoch = self.stages.total

    def _weight_optim(self) -> CfgNode:
        """Return OPTIM with the optimizer and the schedule of the weights."""
        optim = self.cfg.OPTIM.clone()
        optim.defrost()
        optim.NAME, optim.LR = self.settings.WEIGHT_OPTIM, self.settings.WEIGHT_LR
        optim.STAGED_LR = False  # WEIGHT_LR is the rate of all weights
        if self.settings.STAGE == "two":
            # A warm-up protects a random prompt; for the weights it would only cost an epoch.
            optim.MAX_EPOCH, optim.WARMUP_EPOCH = self.max_weight_epochs(), 0
            if not self.weight_epochs:
                # The rate is constant, because a schedule needs the length, and only its upper bound is known.
                optim.LR_SCHEDULER, optim.STEPSIZE = "single_step", (-1,)
        return optim

    @property
    def phase(self) -> str:
        """What the current epoch trains: see `Stages.phase`."""
        return self.stages.phase(self.epoch)

    def describe_epochs(self) -> str:
        if not self.two_stages:
            return super().describe_epochs()
        stages = self.stages
        folds = f", {stages.folds} folds of {stages.first}" if stages.folds else ""
        weights = f"{'' if stages.weights else 'at most '}{stages.max_weights} for the weights"
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
        """Return the names of the out-classes for L_Ent."""
        count, seed = len(self.classnames), derive_seed(self.seed, "out-classes")
        names = make_outclasses(self.settings.OUT_CLASSES, count, self.classnames, seed)
        if names:
            detail(f"Out-classes: {len(names)} generated class names ({', '.join(names[:5])}, ...)")
        return names

    def _make_outclasses(self) -> None:
        self.out_names = self.choose_outclasses()
        if not self.out_names:
            return
        self.out_hand_crafted = self.clip.encode_classes(self.out_names, self.templates())
        self.out_learners = [self.make_learner(clip, self.out_names) for clip in self.clip.each()]
        for out_learner, learner in zip(self.out_learners, self.learners, strict=True):
            out_learner.ctx = learner.ctx  # one parameter for both

    def before_train(self) -> None:
        settings = self.settings
        if settings.CALIBRATED and settings.WEIGHT_FIT != "heldout":
            raise UserError(
                f"TRAINER.COCOAMIX.CALIBRATED is True, but WEIGHT_FIT {settings.WEIGHT_FIT} fits no temperature: use "
                "WEIGHT_FIT heldout, or CALIBRATED False."
            )
        if settings.CALIBRATED and not self.folds:
            raise self._no_temperature()  # now rather than in the evaluation after training
        super().before_train()

    def before_epoch(self) -> None:
        if self.phase == "fold" and FOLD not in self._models:
            self._begin_fold(self.stages.fold(self.epoch))
        self._epoch_began = time.monotonic()
        super().before_epoch()
        # The second stage does not change the prompt, so its text features are computed once.
        if self.phase != "weights":
            self._frozen_text = None
        elif self._frozen_text is None:
            self._frozen_text = self._learned_features()

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
        """Return pi^in and pi^out of the learned prompt; with several, of the last one."""
        count = len(self.weights.relative()[0])
        # Without out-classes, pi^in applies to every class.
        other = count if self.settings.OUT_CLASSES == "none" else 0
        pi = self.weights.pi(torch.tensor([count, other], device=self.device))[-1]
        return [float(value) for value in pi]

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the loss of the phase: L_prompt, Eq. (10), for the prompt; Eqs. (13)-(15) for the weights.

        L_prompt never reaches the weights, and their losses never reach the prompt.
        """
        terms: dict[str, Tensor] = {}
        total: Tensor | float = 0.0
        learners = self.fold_learners if self.phase == "fold" else self.learners
        text = self.encode_learners(learners) if self._frozen_text is None else self._frozen_text[0]
        learned = image_features @ text.t()
        logits = self.clip.logit_scale * learned  # of the learned prompt alone
        if self.phase != "weights":
            prompt_loss, terms = self.loss(logits, labels)
            total = total + prompt_loss
        if self.phase in ("prompt", "fold"):
            return {"loss": cast(Tensor, total), **terms}, logits
        return self._weight_terms(image_features, learned.detach(), labels, total, terms), logits

    def other_prompts(self) -> list[Tensor]:
        """Return the (C, embedding) text features of prompts 0 to K - 1 of the mixture, all but the one in training."""
        return [self.hand_crafted_features()]

    def _weight_terms(
        self, image_features: Tensor, learned: Tensor, labels: Tensor, total: Tensor | float, terms: dict[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the terms with the losses of the weights, which are added to the total, and values for the log."""
        settings = self.settings
        others = [image_features @ text.t() for text in self.other_prompts()]
        mixed = self.weights.in_logits(torch.stack([*others, learned]))
        terms["mix"] = F.cross_entropy(mixed, labels)
        if not self.folds:  # with folds, pi^in is fitted to held-out images and not trained
            total = total + settings.W_IN * terms["mix"]
        out = self._out_features() if self._frozen_text is None else self._frozen_text[1]
        if out is not None:
            sides = torch.stack([image_features @ self.out_hand_crafted.t(), image_features @ out.t()])
            terms["ent"] = self.weights.out_loss(sides, settings.MARGIN)
            total = total + settings.W_OUT * terms["ent"]
        with torch.no_grad():
            terms["acc_mix"] = (mixed.argmax(dim=1) == labels).float().mean() * 100
            # Owners of an in-class and an out-class of the last prompt, made on the device to avoid a synchronisation.
            pi = self.weights.pi(torch.arange(1, -1, -1, device=self.device) * len(others))[-1]
            terms["pi_in"], terms["pi_out"] = pi[0], pi[1]
        return {"loss": cast(Tensor, total), **terms}

    # ------------------------------------------------------------------ folds: weights fitted to held-out images

    def _make_folds(self) -> None:
        """Split the training images into folds, if WEIGHT_FIT is heldout and every class has at least two."""
        wanted = self.two_stages and self.settings.WEIGHT_FIT == "heldout"
        self._full_loader = self.train_loader_x
        items = cast(ImageItems, self._full_loader.dataset).items
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

    def encoding_batch_size(self) -> int:
        """With folds, return the batch size of the first stage, because a fold may be smaller than a batch."""
        return (
            min(int(self._full_loader.batch_size or 1), len(cast(ImageItems, self._full_loader.dataset)))
            if self.folds
            else 0
        )

    def _begin_fold(self, fold: int) -> None:
        """Start a fold: register a new prompt, to be tuned like the final one but without the held-out images."""
        items = cast(ImageItems, self._full_loader.dataset).items
        used, count = self.folds.training_items(items, fold), self.folds.count
        print(f"** Fold {fold + 1} of {count}: {len(used):,} images, {len(items) - len(used):,} held out **")
        self.train_loader_x = loader_over(self.cfg, self._full_loader, used, train=True, seed=self.seed)
        self.fold_learners = self._make_fold_learners(fold)
        self.register(FOLD, as_one(self.fold_learners), self.cfg.OPTIM)

    def _make_fold_learners(self, fold: int) -> list[PromptLearner]:
        seed = derive_seed(self.seed, "context", "fold", fold)
        return [self.make_learner(clip, self.classnames, seed) for clip in self.clip.each()]

    def _end_fold(self) -> None:
        """Store the prompt of the fold; after the last fold, fit pi^in and the temperature."""
        last = self.folds.add(parameters_of(self._models[FOLD]))
        self.unregister(FOLD)
        self.train_loader_x = self._full_loader
        if last:
            self._fit()

    @torch.no_grad()
    def _fit(self) -> None:
        """Fit pi^in and the temperature, with each image's similarities under the prompt tuned without it."""
        began = time.monotonic()
        features, labels, indices = self._plain_features()
        learned = torch.empty(len(labels), len(self.classnames), device=self.device)
        for fold, state in enumerate(self.folds.states):
            learners = self._make_fold_learners(fold)
            checkpoints.load_into(as_one(learners), state, f"fold {fold + 1}")
            rows = torch.tensor([self.folds.fold_of[index] == fold for index in indices], device=self.device)
            learned[rows] = features[rows] @ self.encode_learners(learners).t()
        found = heldout.fit(features @ self.hand_crafted_features().t(), learned, labels, self.clip.logit_scale)
        self.weights.inside.fill_(math.log(found.pi_in / (1 - found.pi_in)))
        self.second.follow(self.learned_pi())
        seconds = round(self.folds.seconds + time.monotonic() - began, 3)
        self.folds.fitted = {"folds": self.folds.count, **found.as_dict(), "seconds": seconds}
        print(
            f"Held-out fit over {found.images:,} images: pi^in {found.pi_in:.4f}, cross-entropy {found.nll:.4f}; "
            f"{found.calibrated_nll:.4f} at the temperature {found.temperature:.5f}"
        )

    def _plain_features(self) -> tuple[Tensor, Tensor, list[int]]:
        """Return the features, labels and indices of the training images, without augmentation.

        Only images that can be read now are included; which these are may have changed since an epoch.
        """
        items = cast(ImageItems, self._full_loader.dataset).items
        # The batch size affects the last bits. A resume may change the test batch size, but not the training one.
        size = self._full_loader.batch_size
        loader = loader_over(self.cfg, self.test_loader, items, train=False, seed=self.seed, batch_size=size)
        found = self.images.batches(loader, "train", self.device, self.encoding_batch_size())
        batches = [(self.encode(inputs), labels, indices) for inputs, labels, indices in found]
        features, labels, indices = (torch.cat(side) for side in zip(*batches, strict=True))
        return features, labels, indices.tolist()

    def fitted(self) -> dict[str, Any]:
        """Return the fit to held-out images, of the loaded checkpoint or of this run."""
        return dict((self.loaded_from.get("heldout") if self.loaded_from else self.folds.fitted) or {})

    def _temperature(self) -> float | None:
        """Return the fitted temperature of the mixture if CALIBRATED is set, else None."""
        if not self.settings.CALIBRATED:
            return None
        found = self.fitted()
        if "temperature" not in found:
            raise self._no_temperature()
        return float(found["temperature"])

    def _no_temperature(self) -> UserError:
        """Return the error for CALIBRATED without a fitted temperature."""
        trained_with = self.loaded_from.get("settings") or {}
        if "why" in self.fitted():
            reason = f"no temperature is fitted, because {self.fitted()['why']}. Use CALIBRATED False."
        elif trained_with.get("TRAINER.COCOAMIX.WEIGHT_FIT") == "heldout":
            reason = (
                f"the checkpoint of epoch {self.trained_epochs} was written before the temperature was fitted, which "
                "happens after the last fold. Use CALIBRATED False, or a later checkpoint."
            )
        else:
            reason = (
                "the model was not trained with WEIGHT_FIT heldout, which fits the temperature. "
                "Use CALIBRATED False, or train with WEIGHT_FIT heldout."
            )
        return UserError(f"TRAINER.COCOAMIX.CALIBRATED is True, but {reason}")

    # ------------------------------------------------------------------ evaluation

    def text_features(self) -> Tensor:
        return self.encode_learners(self.learners)

    def owners(self) -> Tensor:
        """Return the (C,) owners of the current classes: 1 for an in-class of the prompt, 0 for an out-class."""
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
        low, high = (float(value) for value in self.head.pi[1].aminmax())
        print(f"Weight of the learned prompt: {low:.4f} to {high:.4f} over the classes")
        if self.head.centred:
            print("Similarities are centred over the classes (CENTRE)")
            self.protocol["centred"] = True

    def feature_logits(self, features: Tensor) -> Tensor:
        if self.settings.ENSEMBLE != "coa":
            return super().feature_logits(features)
        return self.head.logits(features @ self.hand_crafted_features().t(), features @ self._evaluated_features.t())

    # ------------------------------------------------------------------ saving, resuming, loading

    def saved_models(self) -> list[str]:
        return [name for name in super().saved_models() if name != FOLD]

    def describe_origin(self) -> dict[str, Any]:
        origin = super().describe_origin()
        if self.second.ended is not None:
            origin["second_stage"] = self.second.ended
        if self.folds.fitted is not None:
            origin["heldout"] = self.folds.fitted
        if self.settings.ENSEMBLE == "coa":
            origin["out_classes"] = list(self.out_names)
        return {**origin, "templates": list(self.templates())}

    def resume_state(self, epochs: int) -> dict[str, Any]:
        state = super().resume_state(epochs)
        if self.two_stages:
            state["second_stage"] = self.second.state()
        if self.folds:
            state["heldout"] = self.folds.state()
        return state

    def prepare_resume(self, state: Mapping[str, Any]) -> None:
        """Build the prompt of the fold in which the run was interrupted."""
        if FOLD in state["models"] and self.folds:
            self._begin_fold(self.stages.fold(int(state["epoch"])))

    def restore_state(self, state: Mapping[str, Any]) -> None:
        if self.two_stages:
            self.second.restore(state["second_stage"])
            if self.second.ended is not None:
                self.max_epoch = int(state["epoch"])
        if self.folds:
            self.folds.restore(state["heldout"])

    def epochs_of(self, name: str, done: int) -> int:
        return self.stages.epochs_of(name == WEIGHTS, done)

    def restore_from_origin(self, origin: Mapping[str, Any], done: int) -> None:
        """Restore the end of the second stage, if it has ended. Otherwise a new round begins: checkpoints hold none."""
        if not self.two_stages:
            return
        self.second.follow(self.learned_pi())
        self.second.ended = origin.get("second_stage")
        if self.second.ended:
            self.max_epoch = done
        if self.folds and done > self.stages.first:
            self.folds.fitted = origin.get("heldout")
            if done < self.max_epoch:
                raise UserError(
                    f"The checkpoints of {done} epochs have no resume.pth next to them, and only that file holds the "
                    "prompts of the folds (TRAINER.COCOAMIX.WEIGHT_FIT heldout). Restore it, or choose another "
                    "--output-dir."
                )

    def adopt_settings(self, settings: Mapping[str, Any]) -> None:
        """Also adopt the position of the class name and the parameterisation of the weights."""
        before, learners = self.settings, self.learners
        super().adopt_settings(settings)
        self.weights.stage = self.settings.STAGE
        if self.settings.CLASS_TOKEN_POSITION != before.CLASS_TOKEN_POSITION:
            self._make_learners()
            for new, old in zip(self.learners, learners, strict=True):
                new.ctx = old.ctx
            self._models[PROMPT] = self.prompt_learner
        # The protocol names the folds that the checkpoint was trained with, not those of this run.
        trained_under = self.loaded_from.get("protocol") or {}
        self.protocol.pop("folds", None)
        self.protocol["splits"].pop("folds", None)
        if "folds" in trained_under:
            self.protocol["folds"] = trained_under["folds"]
            self.protocol["splits"]["folds"] = trained_under["splits"].get("folds")

    def more_results(self) -> dict[str, Any]:
        """Add the weights, the end of the second stage, and the fit to held-out images."""
        results = super().more_results()
        if self.settings.ENSEMBLE == "coa":
            pi_in, pi_out = self.learned_pi()
            results["weights"] = {"pi_in": pi_in, "pi_out": pi_out}
        ended = self.loaded_from.get("second_stage") if self.loaded_from else self.second.ended
        if ended:
            results["second_stage"] = ended
        if self.fitted():
            results["heldout"] = self.fitted()
        return results
