"""What a training with a second stage goes through, epoch by epoch, and how that stage ends.

First the prompt; then, where the weights are fitted to held-out images, a prompt for each fold; then the weights. All
are epochs of one loop, so that a run which is killed in any of them goes on there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from cocoamix.convergence import Movement, epochs_within
from cocoamix.weights import CoAWeights

from .handmade import HandmadeTrainer

FOLD = "fold_prompt"  # the model that is trained in a fold
_MODELS = {"prompt": ["prompt_learner"], "fold": [FOLD], "weights": ["coa_weights"]}
_MODELS["both"] = [*_MODELS["prompt"], *_MODELS["weights"]]


class StagedTrainer(HandmadeTrainer):
    """A trainer of a prompt and of weights, together or one after the other."""

    weights: CoAWeights
    two_stages = False
    folds = 0  # prompts that are tuned between the stages
    second_stage: dict[str, Any] | None = None  # how long it was and why it ended, once it has

    # ------------------------------------------------------------------ which epoch does what

    @property
    def first_epochs(self) -> int:
        """How long the prompt is tuned."""
        return int(self.cfg.OPTIM.MAX_EPOCH)

    @property
    def before_weights(self) -> int:
        """How many epochs the second stage comes after."""
        return self.first_epochs * (1 + self.folds)

    @property
    def weight_epochs(self) -> int:
        """How long the second stage is; 0 until the weights stand still."""
        return int(self.settings.WEIGHT_EPOCHS)

    @property
    def trains_weights(self) -> bool:
        """Whether the second stage has anything to train. For subclasses."""
        return self.two_stages

    def most_weight_epochs(self) -> int:
        """Return how long the second stage is at most."""
        return self.weight_epochs or epochs_within(self.settings.WEIGHT_MAX_STEPS, len(self.train_loader_x))

    def plan_stages(self) -> None:
        """Lay out the epochs. The weights are there."""
        self.second_stage = None
        if self.two_stages:
            self.max_epoch = self.before_weights + (self.most_weight_epochs() if self.trains_weights else 0)
            self.follow_weights()

    @property
    def phase(self) -> str:
        """What is trained now: the prompt, that of a fold, the weights, or the prompt and the weights."""
        if self.settings.ENSEMBLE != "coa":
            return "prompt"
        if not self.two_stages:
            return "both"
        if self.epoch < self.first_epochs:
            return "prompt"
        return "fold" if self.epoch < self.before_weights else "weights"

    def active_models(self) -> list[str]:
        return _MODELS[self.phase]

    def update_lr(self, names: Any = None) -> None:
        super().update_lr(names or self.active_models())

    def get_current_lr(self, names: Any = None) -> float:
        return float(super().get_current_lr(names or self.active_models()))

    def view_of(self, epoch: int) -> int:
        """A fold sees the augmentations of the first stage again, and so does a second stage of unknown length.

        So both encode nothing anew.
        """
        if self.two_stages and epoch >= self.first_epochs:
            weights = epoch >= self.before_weights
            known = weights and self.weight_epochs > 0
            epoch = self.first_epochs + epoch - self.before_weights if known else epoch % self.first_epochs
        return super().view_of(epoch)

    def count_views(self) -> int:
        most = self.first_epochs + (self.weight_epochs if self.two_stages else 0)
        return min(super().count_views(), most)

    # ------------------------------------------------------------------ the end of the second stage

    def after_epoch(self) -> None:
        if self.phase == "weights":
            self._look_for_the_end()
        super().after_epoch()

    def follow_weights(self) -> None:
        """Measure from here how far the weights move."""
        self._movement = Movement(self.learned_pi())

    def _look_for_the_end(self) -> None:
        """End the second stage once its weights stand still, or its length or its bound is reached."""
        moved = self._movement.after_epoch(self.learned_pi(), self.num_batches)
        last = self.epoch + 1 == self.max_epoch
        epochs = self.epoch + 1 - self.before_weights
        how_far = "" if moved is None else f": pi moved by {moved:.6f} in the last round"
        ended = ""
        if self.weight_epochs:
            ended = "length" if last else ""
            if last:
                print(f"The weights trained for {epochs} epochs, as set{how_far}")
        elif moved is not None and moved < self.settings.WEIGHT_TOLERANCE:
            ended = "converged"
            print(f"The weights converged after {epochs} epochs{how_far}")
        elif last:
            ended = "bound"
            print(f"The weights stopped at the bound of {self.settings.WEIGHT_MAX_STEPS} steps{how_far}")
        if ended:
            self.max_epoch = self.epoch + 1
            pi_in, pi_out = self.learned_pi()
            facts = {"epochs": epochs, "steps": epochs * self.num_batches, "ended": ended, "moved": moved}
            self.second_stage = {**facts, "pi_in": pi_in, "pi_out": pi_out}

    @torch.no_grad()
    def learned_pi(self) -> list[float]:
        """Return the weight of the learned prompt, of several the last, for its own classes and for others."""
        count = len(self.weights.relative()[0])
        pi = self.weights.pi(torch.tensor([count, 0], device=self.device))[-1]
        return [float(share) for share in pi]

    # ------------------------------------------------------------------ going on, and telling

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
        if not self.two_stages:
            return done
        return max(0, done - self.before_weights) if name == "coa_weights" else min(done, self.first_epochs)

    def take_up_origin(self, origin: Mapping[str, Any], done: int) -> None:
        """Checkpoints alone tell whether the second stage has ended, not where a round of it stands: one begins."""
        super().take_up_origin(origin, done)
        if self.two_stages:
            self.follow_weights()
            self.second_stage = origin.get("second_stage")
            self.max_epoch = done if self.second_stage else self.max_epoch

    def provenance(self) -> dict[str, Any]:
        told = super().provenance()
        return told if self.second_stage is None else {**told, "second_stage": self.second_stage}

    def more_results(self) -> dict[str, Any]:
        """Add the learned weights and how the second stage ended: of the loaded checkpoint, or of this training."""
        told = super().more_results()
        if self.settings.ENSEMBLE == "coa":
            pi_in, pi_out = self.learned_pi()
            told = {**told, "weights": {"pi_in": pi_in, "pi_out": pi_out}}
        ended = self.loaded_from.get("second_stage") if self.loaded_from else self.second_stage
        return {**told, **({"second_stage": ended} if ended else {})}
