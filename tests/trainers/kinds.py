"""A tiny configuration of every registered trainer, and what a run of it computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cocoamix.io import checkpoints
from cocoamix.trainer import CLIPTrainer
from tests.conftest import Run
from tests.faults import runs

BASE = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base"]
SPLIT = ["FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2"]
TWO = ["TRAINER.ENLEARN.BACKBONES", "['tiny', 'tiny']", "TRAINER.ENLEARN.BACKBONE_WEIGHTS", "['', 'random']"]

# Trainer and settings of each kind of run; those that train are also killed at random, by the tests of faults.
KINDS: dict[str, tuple[str, list[str]]] = {
    **{kind: (trainer, list(settings)) for kind, (trainer, settings) in runs.KINDS.items()},
    "DePTKgCoOp": ("DePTKgCoOp", BASE),
    "ZeroshotCLIP": ("ZeroshotCLIP", BASE),
    "ZeroshotCLIP2": ("ZeroshotCLIP2", BASE),
    "ZeroshotCLIPFSCIL": ("ZeroshotCLIPFSCIL", SPLIT),
}
TRAINED = [kind for kind in KINDS if not kind.startswith("Zeroshot")]
SESSIONS = [kind for kind in TRAINED if "sessions" in kind]
PLAIN = [kind for kind in TRAINED if "sessions" not in kind]


class Killed(BaseException):
    """Simulates a kill: nothing catches it."""


@contextmanager
def killed_at(session: int | None, epoch: int, batch: int | None = None) -> Iterator[None]:
    """Kill the run within before an epoch, or before a step of it; -1 is the last. It must get there."""

    def here(trainer: Any) -> bool:
        return getattr(trainer, "session", None) == session and trainer.epoch == epoch

    def before_epoch(self: Any) -> None:
        if batch is None and here(self):
            raise Killed
        start_epoch(self)

    def take_step(self: Any, *batch_of_step: Tensor) -> Any:
        if batch is not None and here(self) and self.batch_idx == batch % self.num_batches:
            raise Killed
        return step(self, *batch_of_step)

    start_epoch, step = CLIPTrainer.before_epoch, CLIPTrainer.take_step
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(CLIPTrainer, "before_epoch", before_epoch)
        patch.setattr(CLIPTrainer, "take_step", take_step)
        yield


def stopping_at(epoch: int, patch: pytest.MonkeyPatch) -> None:
    """Make runs stop before an epoch, as Ctrl-C does."""
    before_epoch = CLIPTrainer.before_epoch

    def stop(self: Any) -> None:
        if self.epoch == epoch:
            raise KeyboardInterrupt
        before_epoch(self)

    patch.setattr(CLIPTrainer, "before_epoch", stop)


@dataclass
class Step:
    """A training step: its phase, its inputs, and the parameters before and after it."""

    session: int | None
    epoch: int
    phase: Any
    inputs: Tensor
    labels: Tensor
    rates: dict[str, float]
    random: Tensor  # state of torch's generator
    before: dict[str, Tensor]
    shown: dict[str, float]
    after: dict[str, Tensor]


def parameters(model: Any) -> dict[str, Tensor]:
    """Return copies of the trained parameters of a module."""
    return {name: value.detach().clone() for name, value in model.parts.named_parameters()}


def watch_trainers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that receives the trainer of each run."""
    seen: list[Any] = []
    build = CLIPTrainer.build_model
    monkeypatch.setattr(CLIPTrainer, "build_model", lambda self: (seen.append(self), build(self))[1])
    return seen


def watch_steps(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Return a list that receives each step."""
    steps: list[Step] = []
    take_step = CLIPTrainer.take_step

    def watched(self: Any, inputs: Tensor, labels: Tensor) -> dict[str, float]:
        features, before = self.read(inputs).detach().clone(), parameters(self.model)
        phase, optimizers = self.course.phase, self.optimisation.optimizers
        rates = {name: optimizers[name].param_groups[0]["lr"] for name in phase.parts}
        place, random = (self.session, self.epoch, phase), torch.get_rng_state()
        shown: dict[str, float] = take_step(self, inputs, labels)
        steps.append(Step(*place, features, labels.clone(), rates, random, before, shown, parameters(self.model)))
        return shown

    monkeypatch.setattr(CLIPTrainer, "take_step", watched)
    return steps


def watch_logits(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """Return a list that receives the logits of four images after every evaluation."""
    kept: list[Tensor] = []
    test = CLIPTrainer.test
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))

    def keeping(self: Any, split: str | None = None) -> float:
        accuracy = test(self, split)
        with torch.no_grad():
            kept.append(self.model_inference(images))
        return accuracy

    monkeypatch.setattr(CLIPTrainer, "test", keeping)
    return kept


def state(run: Run, part: str, epoch: int) -> dict[str, Tensor]:
    """Return the parameters of a checkpoint."""
    assert run.status == 0, run.output[-800:]
    found: dict[str, Tensor] = checkpoints.load(run.folder / part / f"model.pth.tar-{epoch}")["state_dict"]
    return found


def context(run: Run, epoch: int = 4) -> Tensor:
    """Return the context of a run of CoOp."""
    return state(run, "prompt_learner", epoch)["ctx"]


def session_state(folder: Path, session: int) -> dict[str, Tensor]:
    """Return the parameters that a session saved."""
    models = checkpoints.load(folder / "sessions" / f"session-{session}.pth")["models"]
    return {f"{model}.{key}": value for model, tensors in models.items() for key, value in tensors.items()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Return whether two states are equal, bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def evaluate(run: Any, trained: Run, *settings: str, trainer: str, name: str = "evaluated", **more: Any) -> Run:
    """Evaluate the model of a run."""
    done: Run = run("--eval-only", "--model-dir", str(trained.folder), *settings, trainer=trainer, name=name, **more)
    return done
