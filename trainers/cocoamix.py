"""CoCoA-Mix (ICML 2025): a learned prompt specialised by CoA-loss, mixed with a hand-crafted one by CoA-weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from dassl.engine import TRAINER_REGISTRY
from torch import Tensor, nn
from yacs.config import CfgNode

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.several import SeveralCLIPs
from cocoamix.convergence import Movement, epochs_within
from cocoamix.images import derive_seed
from cocoamix.losses import make_loss
from cocoamix.mixture import find_owners, share_one_pi
from cocoamix.outclasses import make_outclasses
from cocoamix.prompts import PromptLearner
from cocoamix.registry import register
from cocoamix.weights import CoAWeights

from . import config
from .handmade import HandmadeTrainer


@register(TRAINER_REGISTRY)
class CoCoAMix(HandmadeTrainer):
    """One learned prompt (K = 1) beside the hand-crafted one, on one or several backbones."""

    section = "COCOAMIX"

    ensembles = ("coa", "uniform", "none")
    trains_with_template = True
    followed_keys = ("TEMPLATE", "STAGE", "OUT_CLASSES", "CLASS_TOKEN_POSITION")

    _still: tuple[Tensor, Tensor | None] | None = None  # features of a prompt that is not trained in this phase
    second_stage: dict[str, Any] | None = None  # how long it was and why it ended, once it has

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
        if settings.ENSEMBLE == "coa":
            self.register("coa_weights", self.weights, self._weight_optim())
            self._make_outclasses()
        self.second_stage = None
        if self.two_stages:
            self.max_epoch = self.cfg.OPTIM.MAX_EPOCH + self._most_weight_epochs()
            self._movement = Movement(self._pi())
        self.encode_handmade()
        if self.cfg.MODEL.INIT_WEIGHTS:
            self.load_initial("prompt_learner", self.cfg.MODEL.INIT_WEIGHTS)

    def make_weights(self) -> CoAWeights:
        """Return the weights to learn."""
        return CoAWeights(self.clip.logit_scale, stage=self.settings.STAGE)

    @property
    def weight_epochs(self) -> int:
        """How long the second stage is; 0 until the weights stand still."""
        return int(self.settings.WEIGHT_EPOCHS)

    def _most_weight_epochs(self) -> int:
        return self.weight_epochs or epochs_within(self.settings.WEIGHT_MAX_STEPS, len(self.train_loader_x))

    @property
    def context_seed(self) -> int:
        """What a random context is drawn from."""
        return derive_seed(self.seed, "context")

    def _learner(self, clip: FrozenCLIP, names: Sequence[str]) -> PromptLearner:
        settings = self.settings
        return PromptLearner(
            clip,
            names,
            n_ctx=settings.N_CTX,
            ctx_init=config.context_words(settings.CTX_INIT),
            position=settings.CLASS_TOKEN_POSITION,
            seed=self.context_seed,
        )

    def _make_learners(self) -> None:
        self.learners = [self._learner(clip, self.classnames) for clip in self.backbones]
        # A single prompt keeps CoOp's keys in its checkpoint.
        several = len(self.learners) > 1
        self.prompt_learner: nn.Module = nn.ModuleList(self.learners) if several else self.learners[0]

    def _weight_optim(self) -> CfgNode:
        """Return OPTIM with the optimizer and the length of the weights' own."""
        optim = self.cfg.OPTIM.clone()
        optim.defrost()
        optim.NAME, optim.LR = self.settings.WEIGHT_OPTIM, self.settings.WEIGHT_LR
        if self.settings.STAGE == "two":
            # A warm-up spares a random prompt; weights alone would only lose the epoch.
            optim.MAX_EPOCH, optim.WARMUP_EPOCH = self._most_weight_epochs(), 0
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
        self.out_learners = [self._learner(clip, self.out_names) for clip in self.backbones]
        for mine, theirs in zip(self.out_learners, self.learners, strict=True):
            mine.ctx = theirs.ctx  # the same context before other names

    # ------------------------------------------------------------------ training

    @property
    def phase(self) -> str:
        """What is trained now: the prompt, the weights, or both."""
        if self.settings.ENSEMBLE != "coa":
            return "prompt"
        if not self.two_stages:
            return "both"
        return "prompt" if self.epoch < self.cfg.OPTIM.MAX_EPOCH else "weights"

    def active_models(self) -> list[str]:
        return {"prompt": ["prompt_learner"], "weights": ["coa_weights"], "both": ["prompt_learner", "coa_weights"]}[
            self.phase
        ]

    def update_lr(self, names: Any = None) -> None:
        super().update_lr(names or self.active_models())

    def get_current_lr(self, names: Any = None) -> float:
        return float(super().get_current_lr(names or self.active_models()))

    def before_epoch(self) -> None:
        super().before_epoch()
        # In the second stage the prompt stands still, and so do its features.
        if self.phase != "weights":
            self._still = None
        elif self._still is None:
            self._still = self._learned_features()

    def view_of(self, epoch: int) -> int:
        """A second stage of unknown length goes through the augmentations of the first again and encodes nothing."""
        return super().view_of(epoch if not self.two_stages or self.weight_epochs else epoch % self.cfg.OPTIM.MAX_EPOCH)

    def count_views(self) -> int:
        known = not self.two_stages or bool(self.weight_epochs)
        return super().count_views() if known else min(super().count_views(), self.cfg.OPTIM.MAX_EPOCH)

    def after_epoch(self) -> None:
        if self.phase == "weights":
            self._look_for_the_end()
        super().after_epoch()

    def _look_for_the_end(self) -> None:
        """End the second stage once its weights stand still, or its length or its bound is reached."""
        moved = self._movement.after_epoch(self._pi(), self.num_batches)
        last = self.epoch + 1 == self.max_epoch
        epochs = self.epoch + 1 - self.cfg.OPTIM.MAX_EPOCH
        how_far = "" if moved is None else f": pi moved by {moved:.6f} in the last round"
        if self.weight_epochs:
            ended = "length" if last else ""
        elif moved is not None and moved < self.settings.WEIGHT_TOLERANCE:
            ended = "converged"
            print(f"The weights converged after {epochs} epochs{how_far}")
        else:
            ended = "bound" if last else ""
            if last:
                print(f"The weights stopped at the bound of {self.settings.WEIGHT_MAX_STEPS} steps{how_far}")
        if ended:
            pi_in, pi_out = self._pi()
            steps = epochs * self.num_batches
            self.max_epoch = self.epoch + 1
            self.second_stage = {"epochs": epochs, "steps": steps, "ended": ended, "moved": moved}
            self.second_stage |= {"pi_in": pi_in, "pi_out": pi_out}

    @torch.no_grad()
    def _pi(self) -> list[float]:
        """Return the weight of the learned prompt, of several the last, for its own classes and for others."""
        count = len(self.weights.relative()[0])
        pi = self.weights.pi(torch.tensor([count, 0], device=self.device))[-1]
        return [float(share) for share in pi]

    def resume_state(self, epochs: int) -> dict[str, Any]:
        state = super().resume_state(epochs)
        if not self.two_stages:
            return state
        return {**state, "second_stage": {"movement": self._movement.state(), "ended": self.second_stage}}

    def take_up(self, state: Mapping[str, Any]) -> None:
        super().take_up(state)
        if not self.two_stages:
            return
        self._movement.restore(state["second_stage"]["movement"])
        self.second_stage = state["second_stage"]["ended"]
        if self.second_stage is not None:
            self.max_epoch = int(state["epoch"])

    def epochs_of(self, name: str, done: int) -> int:
        first = min(done, self.cfg.OPTIM.MAX_EPOCH) if self.two_stages else done
        return done - first if self.two_stages and name == "coa_weights" else first

    def take_up_origin(self, origin: Mapping[str, Any], done: int) -> None:
        """Checkpoints alone tell whether the second stage has ended, not where a round of it stands: one begins."""
        if self.two_stages:
            self._movement = Movement(self._pi())
            self.second_stage = origin.get("second_stage")
            self.max_epoch = done if self.second_stage else self.max_epoch

    def _encode(self, learners: Sequence[PromptLearner]) -> Tensor:
        clip = cast(SeveralCLIPs, self.clip)
        return clip.encode_prompts([learner() for learner in learners])

    @torch.no_grad()
    def _learned_features(self) -> tuple[Tensor, Tensor | None]:
        return self._encode(self.learners), self._out_features()

    @torch.no_grad()
    def _out_features(self) -> Tensor | None:
        return self._encode(self.out_learners) if self.settings.ENSEMBLE == "coa" and self.out_names else None

    def compute_loss(self, image_features: Tensor, labels: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """Return the loss of the phase. The prompt's loss never reaches the weights, nor theirs the prompt."""
        terms: dict[str, Tensor] = {}
        total: Tensor | float = 0.0
        text = self._encode(self.learners) if self._still is None else self._still[0]
        special = image_features @ text.t()
        alone = self.clip.logit_scale * special
        if self.phase != "weights":
            prompt_loss, terms = self.loss(alone, labels)
            total = total + prompt_loss
        if self.phase == "prompt":
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
        if self.second_stage is not None:
            told["second_stage"] = self.second_stage
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

    def more_results(self) -> dict[str, Any]:
        """Add how the second stage ended: of the loaded checkpoint, or of this training."""
        ended = self.loaded_from.get("second_stage") if self.loaded_from else self.second_stage
        return {**super().more_results(), **({"second_stage": ended} if ended else {})}

    def text_features(self) -> Tensor:
        return self._encode(self.learners)

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
        return self.weights.logits(sides, self._owners, self._mixed, self._centred)
