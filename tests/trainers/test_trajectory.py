"""Whole trainings of CoCoA-Mix, step by step, against plain torch: its own losses, schedules and SGD.

Nothing here uses `cocoamix.coa`, the modules or torch's optimizers. Only the images of each step and the names of the
generated out-classes come from the run; text is encoded over all positions by the blocks of the package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from cocoamix.clip import FrozenCLIP
from tests.conftest import CLASSES, Runner
from tests.methods.modules import learned, written
from tests.trainers.kinds import Step, watch_steps, watch_trainers

LR, WEIGHT_LR, WARMUP, DECAY, MOMENTUM = 0.002, 0.15, 1e-5, 5e-4, 0.9
SGD = ["OPTIM.LR", str(LR), "OPTIM.MAX_EPOCH", "3", "OPTIM.WEIGHT_DECAY", str(DECAY), "OPTIM.MOMENTUM", str(MOMENTUM)]
MIX = {"N_CTX": 2, "TEMPLATE": "dataset", "WEIGHT_LR": WEIGHT_LR, "W": 3.0, "W_IN": 0.7, "W_OUT": 4.0, "MARGIN": 0.6}
SETTINGS = [*SGD, *(part for key, value in MIX.items() for part in (f"TRAINER.COCOAMIX.{key}", str(value)))]
SETTINGS += ["OPTIM.WARMUP_EPOCH", "1", "OPTIM.WARMUP_TYPE", "constant", "OPTIM.WARMUP_CONS_LR", str(WARMUP)]


def cosine(epoch: int, epochs: int, rate: float) -> float:
    return rate * (1 + math.cos(math.pi * epoch / epochs)) / 2


def prompt_rate(epoch: int, rate: float = LR) -> float:
    """One epoch of warm-up, then a cosine over three epochs, of which two are left."""
    return WARMUP if epoch == 0 else cosine(epoch - 1, 3, rate)


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    return -logits.log_softmax(dim=1)[range(len(labels)), labels].mean()


def entropy(logits: Tensor) -> Tensor:
    p = logits.softmax(dim=1)
    return -(p * logits.log_softmax(dim=1)).sum(dim=1) / math.log(logits.shape[1])


@dataclass
class Oracle:
    """One session, or the only one: a context and the two weights of its prompt."""

    clip: FrozenCLIP
    stage: str
    names: Sequence[str]
    out_names: Sequence[str]
    context: Tensor
    earlier: Sequence[Oracle] = ()
    weights: dict[str, Tensor] = field(default_factory=dict)
    velocity: dict[str, Tensor] = field(default_factory=dict)
    texts: dict[tuple[str, ...], list[Tensor]] = field(default_factory=dict)  # of the current context

    def __post_init__(self) -> None:
        start = math.log(self.clip.logit_scale) if self.stage == "one" else 0.0
        self.weights = {side: torch.tensor([start]) for side in ("inside", "outside")}

    def similarities(self, features: Tensor, names: Sequence[str]) -> list[Tensor]:
        """Return those of the template of the dataset, of earlier contexts and of this one."""
        key = tuple(names)
        if key not in self.texts:
            contexts = [*(each.context for each in self.earlier), self.context]
            self.texts[key] = [written(self.clip, names), *(learned(self.clip, names, one) for one in contexts)]
        return [features @ text.t().detach() for text in self.texts[key]]

    def prompt_gradient(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return that of L_CE + w L_CoA of the learned prompt alone."""
        context = self.context.clone().requires_grad_()
        logits = self.clip.logit_scale * features @ learned(self.clip, self.names, context).t()
        right = logits.softmax(dim=1)[range(len(labels)), labels]
        return torch.autograd.grad(-right.log().mean() + 3 * (1 - right).mean(), context)[0]

    def weight_gradients(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return those of the mixture's cross-entropy and of the entropy loss on out-classes."""
        scale = self.clip.logit_scale
        weights = {side: value.clone().requires_grad_() for side, value in self.weights.items()}
        sides, out = (self.similarities(features, names) for names in (self.names, self.out_names))
        if self.stage == "one":
            mixed = scale * sides[0] + weights["inside"].exp() * sides[1]
            lost = entropy(scale * out[0]) - entropy(weights["outside"].exp() * out[1])
        else:
            before = [each.weights["outside"].exp() for each in self.earlier]
            inside, outside = ([torch.ones(1), *before, value.exp()] for value in weights.values())
            mixed = scale * sum(a * s for a, s in zip(inside, sides, strict=True)) / sum(inside)
            shares = [outside[0] / sum(outside), outside[-1] / sum(outside)]
            lost = entropy(scale * shares[0] * out[0]) - entropy(scale * shares[1] * out[-1])
        total = 0.7 * ce(mixed, labels) + 4 * (lost + 0.6).clamp_min(0).mean()
        return dict(zip(weights, torch.autograd.grad(total, list(weights.values())), strict=True))

    def descend(self, name: str, value: Tensor, gradient: Tensor, rate: float) -> Tensor:
        """Return a parameter after a step of SGD with momentum and weight decay."""
        gradient = gradient + DECAY * value
        self.velocity[name] = MOMENTUM * self.velocity.get(name, torch.zeros_like(value)) + gradient
        return value - rate * self.velocity[name]

    def step(self, features: Tensor, labels: Tensor, prompt: float | None, weights: float | None) -> None:
        """Take one step at these rates; None for what the phase does not train."""
        slopes = self.weight_gradients(features, labels) if weights is not None else {}
        if prompt is not None:
            self.context = self.descend("ctx", self.context, self.prompt_gradient(features, labels), prompt)
            self.texts.clear()
        for side, slope in slopes.items():
            assert weights is not None
            self.weights[side] = self.descend(side, self.weights[side], slope, weights)


def follow(oracle: Oracle, steps: Sequence[Step], stage: str, length: int) -> None:
    """Compare the oracle with the run after every step; the parameters must have moved far more than they differ."""
    first = {"ctx": oracle.context.clone(), **{side: value.clone() for side, value in oracle.weights.items()}}
    for number, step in enumerate(steps):
        prompt = weights = None
        if stage == "one":
            prompt, weights = prompt_rate(step.epoch), prompt_rate(step.epoch, WEIGHT_LR)
        elif step.epoch < 3:
            prompt = prompt_rate(step.epoch)
        else:
            weights = cosine(step.epoch - 3, length, WEIGHT_LR)  # no warm-up
        oracle.step(step.inputs, step.labels, prompt, weights)
        wanted = {"ctx": oracle.context, **oracle.weights}
        for name, found in step.after.items():
            leaf = name.split(".")[-1]
            assert (found - wanted[leaf]).norm() < 2e-4 + 2e-3 * (wanted[leaf] - first[leaf]).norm(), (number, name)
    moved = {name: float((value - first[name]).norm()) for name, value in (("ctx", oracle.context),)}
    moved |= {side: float((value - first[side]).abs()) for side, value in oracle.weights.items()}
    assert min(moved.values()) > 0.02, moved


def initial(steps: Sequence[Step]) -> Tensor:
    context = steps[0].before["prompt_learner.ctx"]
    assert context.std().item() == pytest.approx(0.02, rel=0.2)
    return context


@pytest.mark.parametrize("stage", ["one", "two"])
def test_trajectories_of_both_stages(run: Runner, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    base = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base", "DATALOADER.TRAIN_X.BATCH_SIZE", "2"]
    more = ["TRAINER.COCOAMIX.STAGE", stage, "TRAINER.COCOAMIX.WEIGHT_EPOCHS", "3"]
    contexts, images = [], []
    for seed in ("1", "2"):
        with monkeypatch.context() as patch:
            steps, trainers = watch_steps(patch), watch_trainers(patch)
            done = run(*base, *SETTINGS, *more, trainer="CoCoAMix", seed=seed, name=seed)
        assert done.status == 0, done.output[-800:]
        assert len(steps) == (30 if stage == "one" else 60)
        model: Any = trainers[0].model
        oracle = Oracle(model.clip.each()[0], stage, CLASSES[:5], model.out_names, initial(steps))
        assert len(set(model.out_names) - set(CLASSES)) == 5
        contexts.append(oracle.context)
        images.append(torch.cat([step.inputs for step in steps]))
        follow(oracle, steps, stage, 3)
        pi = [math.exp(float(value)) for value in oracle.weights.values()]
        first = model.clip.logit_scale if stage == "one" else 1
        shares = done.results["weights"]
        assert [shares["pi_in"], shares["pi_out"]] == pytest.approx([a / (a + first) for a in pi], rel=1e-2)
    assert not torch.allclose(*contexts)
    assert not torch.allclose(*images)


def test_trajectories_of_sessions(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session has a context and weights of its own, beside those of earlier sessions, which stay."""
    split = ["FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "5", "FSCIL.LAST_SESSION", "2"]
    split += ["FSCIL.BASE_WEIGHT_EPOCHS", "2", "FSCIL.WEIGHT_EPOCHS", "3", "FSCIL.BASE_BATCH_SIZE", "2"]
    split += ["DATALOADER.TRAIN_X.BATCH_SIZE", "1", "TRAINER.COCOAMIX.STAGE", "two"]
    steps, trainers = watch_steps(monkeypatch), watch_trainers(monkeypatch)
    done = run(*split, *SETTINGS, trainer="CoCoAMixFSCIL")
    assert done.status == 0, done.output[-800:]
    clip = trainers[0].clip.each()[0]
    finished: list[Oracle] = []
    first_out = trainers[0].origins[0]["out_classes"]
    for session, (low, high) in enumerate(((0, 4), (4, 6), (6, 8))):
        own = [step for step in steps if step.session == session]
        assert len(own) == (12 * 5 if session == 0 else 10 * 6)
        assert own[0].labels.max() < high - low
        out_names = CLASSES[:low] if session else first_out
        oracle = Oracle(clip, "two", CLASSES[low:high], out_names, initial(own), tuple(finished))
        follow(oracle, own, "two", 3 if session else 2)
        finished.append(oracle)
    starts = [initial([step for step in steps if step.session == session]) for session in range(3)]
    assert all(not torch.allclose(starts[a], starts[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
