"""What every registered trainer must do, each in a tiny configuration."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from dassl.engine import TRAINER_REGISTRY

from cocoamix.io import checkpoints
from cocoamix.run.checkpointer import RESUME
from cocoamix.trainer import CLIPTrainer
from tests.conftest import CLASSES, Runner, epochs
from tests.faults.runs import outcome
from tests.methods.modules import trainers
from tests.trainers.kinds import (
    BASE,
    KINDS,
    PLAIN,
    SESSIONS,
    TRAINED,
    Step,
    equal,
    evaluate,
    killed_at,
    parameters,
    watch_steps,
    watch_trainers,
)


def test_every_registered_trainer_is_here() -> None:
    registered = {name: TRAINER_REGISTRY.get(name) for name in trainers()}
    ours = {name: trainer for name, trainer in registered.items() if issubclass(trainer, CLIPTrainer)}
    assert set(ours) == {trainer for trainer, _ in KINDS.values()}
    for name, trainer in ours.items():  # no trainer knows its method: what one alone overrides belongs into its module
        own = [key for key in vars(trainer) if not key.startswith("__")]
        assert "Model" in own
        assert len(own) <= 8, (name, own)


@pytest.mark.parametrize("kind", TRAINED)
def test_trains(run: Runner, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Every loss is finite, every phase moves its own parts and no others, and rows and steps agree."""
    trainer, settings = KINDS[kind]
    steps, trainers = watch_steps(monkeypatch), watch_trainers(monkeypatch)
    done = run(*settings, trainer=trainer)
    assert done.status == 0, done.output[-800:]
    of_phase: dict[Any, list[Step]] = {}
    for step in steps:
        assert all(map(math.isfinite, step.shown.values())), step.shown
        of_phase.setdefault((step.session, step.phase.name, step.phase.number), []).append(step)
    for place, own in of_phase.items():
        before, after = own[0].before, own[-1].after
        moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
        assert moved == set(own[0].phase.parts), place
        assert len({step.epoch for step in own}) == own[0].phase.epochs
    rows = epochs(done.folder)
    assert [row["phase"] for row in rows if row["loss"]] == [
        one.phase.name for one, other in pairwise([*steps, None]) if one and (not other or _place(one) != _place(other))
    ]
    metrics, model = done.results["metrics"], trainers[0].model
    assert 0 <= metrics["accuracy"] <= 100
    assert metrics["nll"] > 0
    assert done.results["trained_parameters"] == model.trained_parameters() > 0
    assert (done.folder / RESUME).is_file()


def _place(step: Step) -> tuple[Any, int]:
    return step.session, step.epoch


def boundaries(steps: list[tuple[Any, int, int, str, int]]) -> list[tuple[Any, int, int | None]]:
    """Return where to kill a run: before the first epoch of every phase, and in the last step of its last."""
    places: list[tuple[Any, int, int | None]] = []
    for session, start, end in _phases(steps):
        if start or session:
            places.append((session, start, None))
        places.append((session, end, -1))
    return places


def _phases(steps: list[tuple[Any, int, int, str, int]]) -> list[tuple[Any, int, int]]:
    phases: dict[tuple[Any, str, int], list[int]] = {}
    for session, epoch, _, name, number in steps:
        phases.setdefault((session, name, number), []).append(epoch)
    return [(session, min(own), max(own)) for (session, _, _), own in phases.items()]


@pytest.mark.parametrize("kind", TRAINED)
def test_killed_at_every_boundary_and_within_ends_identically(
    run: Runner, shared_run: Runner, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Parts, optimizers, metrics.csv and results, bit for bit."""
    trainer, settings = KINDS[kind]
    with monkeypatch.context() as patch:
        steps = watch_steps(patch)
        whole = run(*settings, trainer=trainer, name="whole")
    assert whole.status == 0, whole.output[-800:]
    places = boundaries([(s.session, s.epoch, 0, s.phase.name, s.phase.number) for s in steps])
    if len(places) == 1:
        places.insert(0, (places[0][0], 1, None))
    for session, epoch, batch in places:
        with killed_at(session, epoch, batch):
            run(*settings, trainer=trainer, name="killed")
    resumed = run(*settings, trainer=trainer, name="killed")
    assert "Resuming from" in resumed.output
    assert outcome(resumed.folder) == outcome(whole.folder)
    for key in ("second_stage", "second_stages", "weights", "sessions", "trained_parameters", "threads", "data"):
        assert resumed.results.get(key) == whole.results.get(key), key
    finished = run(*settings, trainer=trainer, name="killed")
    assert outcome(finished.folder) == outcome(whole.folder)
    assert "batch [" not in finished.output


@pytest.mark.parametrize("kind", PLAIN)
def test_evaluations_of_a_checkpoint(run: Runner, shared_run: Runner, kind: str) -> None:
    """On base classes they repeat the run's own numbers, and state its training; new and all classes follow."""
    trainer, settings = KINDS[kind]
    trained = shared_run(*settings, trainer=trainer)
    changed = {"base": "base", "new": "new", "all": "all"}
    for subset in changed:
        given = [subset if value == "base" else value for value in settings]
        done = evaluate(run, trained, *given, trainer=trainer, name=subset)
        assert done.status == 0, done.output[-800:]
        names = {"base": CLASSES[:5], "new": CLASSES[5:], "all": CLASSES}[subset]
        assert done.results["classnames"] == names
        assert done.results["evaluated_images"] == 4 * len(names)
        if subset == "base":
            assert done.results["metrics"] == trained.results["metrics"]
            assert done.results["fingerprint"] == trained.results["fingerprint"]
        if subset == "all":
            joint = done.results["metrics"]
            assert (joint["base_accuracy"] + joint["new_accuracy"]) / 2 == pytest.approx(joint["accuracy"])
        for key in ("seed", "shots", "train_images", "epoch", "trained_parameters"):
            assert done.results[key] == trained.results[key], key


@pytest.mark.parametrize("kind", SESSIONS)
def test_evaluations_of_sessions(run: Runner, shared_run: Runner, kind: str) -> None:
    """After all sessions and after some; training settings come from the run, whatever the command says."""
    trainer, settings = KINDS[kind]
    trained = shared_run(*settings, trainer=trainer)
    wanted = trained.results["sessions"]
    assert [each["classes"] for each in wanted] == [4, 6, 8, 10]
    for last in (3, 1):
        other = ["FSCIL.LAST_SESSION", str(last), "OPTIM.LR", "0.5", "FSCIL.SHOTS", "3"]
        done = evaluate(run, trained, *settings, *other, trainer=trainer, name=f"after{last}")
        assert done.status == 0, done.output[-800:]
        assert done.results["sessions"] == wanted[: last + 1]
        assert done.results["trained_parameters"] == trained.results["trained_parameters"]
        assert done.results["config"]["OPTIM"]["LR"] == 0.02
        assert "FSCIL.SHOTS is 2 as in training" in done.output
        if last == 3:
            for key in ("metrics", "method", "fingerprint", "second_stages", "finished", "train_images", "mean", "pd"):
                assert done.results.get(key) == trained.results.get(key), key


@pytest.mark.parametrize("kind", ["ZeroshotCLIP", "ZeroshotCLIP2", "ZeroshotCLIPFSCIL"])
def test_zero_shot_methods_are_evaluated(run: Runner, kind: str) -> None:
    trainer, settings = KINDS[kind]
    done = run("--eval-only", *settings, trainer=trainer)
    assert done.status == 0, done.output[-500:]
    assert done.results["trained_parameters"] == 0
    assert "auroc" not in done.results["metrics"]
    assert len(done.results["protocol"]["templates"]) == (8 if kind == "ZeroshotCLIP2" else 1)
    if kind.endswith("FSCIL"):
        whole = run("--eval-only", trainer="ZeroshotCLIP", name="plain")
        assert done.results["metrics"]["accuracy"] == whole.results["metrics"]["accuracy"]
        return
    trained = run(*settings, trainer=trainer, name="trained")
    assert trained.status == 2
    assert "--eval-only" in trained.output


LOOPS = [kind for kind in TRAINED if kind not in ("CoOp, images encoded anew", "CoOp, best on val", "FSPT, sessions")]


@pytest.mark.parametrize("kind", LOOPS)
def test_own_loop_takes_the_same_steps(run: Runner, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A module of the same seed, in a plain loop with torch's optimizers: every step equals the trainer's, bitwise."""
    trainer, settings = KINDS[kind]
    steps, trainers = watch_steps(monkeypatch), watch_trainers(monkeypatch)
    more = ["FSCIL.LAST_SESSION", "0"] if "sessions" in kind else ["OPTIM.NAME", "sgd"]
    assert run(*settings, *more, trainer=trainer).status == 0
    ours = trainers[0]
    model = ours.Model(ours.clip, ours.make_task(), ours.Model.settings_of(ours.cfg), ours.seed)
    adam = ours.cfg.OPTIM.NAME == "adam"
    optimizers: dict[str, torch.optim.Optimizer] = {}
    for number, step in enumerate(steps):
        if step.phase.name == "fold":  # whose prompts are parts for a while
            break
        assert equal(parameters(model), step.before), number
        for name, rate in step.rates.items():
            if name not in optimizers:
                own = list(model.parts[name].parameters())
                sgd = torch.optim.SGD(own, lr=rate, momentum=0.9, weight_decay=5e-4)
                adapted = torch.optim.Adam(own, lr=rate, weight_decay=5e-4)
                optimizers[name] = adapted if adam and name != "coa_weights" else sgd
            optimizers[name].param_groups[0]["lr"] = rate
            optimizers[name].zero_grad()
        torch.set_rng_state(step.random)  # FACT draws pairs of images
        losses = model.loss(step.inputs, step.labels, step.phase.parts)
        losses.backward()
        for name in step.rates:
            optimizers[name].step()
        assert float(losses.total.detach()) == step.shown["loss"]
        assert equal(parameters(model), step.after), number


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
@pytest.mark.parametrize("kind", ["CoOp", "ProGrad", "MaPLe", "DePT", "TuneEn", "CoCoAMix, two stages", "CoCoOp"])
def test_precisions_agree(run: Runner, shared_run: Runner, kind: str, precision: str) -> None:
    """Every precision trains on a CPU, keeps trained parameters in fp32 and ends near those of fp32."""
    trainer, settings = KINDS[kind]
    section = TRAINER_REGISTRY.get(trainer).Model.section
    key, few = f"TRAINER.{section}.PREC", [*settings, *BASE, "OPTIM.MAX_EPOCH", "2"]
    exact = shared_run(*few, key, "fp32", trainer=trainer, name="exact")
    rough = run(*few, key, precision, trainer=trainer, name="rough")
    assert rough.status == 0, rough.output[-500:]
    assert rough.results["protocol"]["precision"] == precision
    still = [
        "OPTIM.LR",
        "0.0",
        "OPTIM.WARMUP_CONS_LR",
        "0.0",
        "OPTIM.WEIGHT_DECAY",
        "0.0",
        "TRAIN.CHECKPOINT_FREQ",
        "0",
    ]
    start = shared_run(*few, key, "fp32", *still, trainer=trainer, name="start")
    for path in sorted(exact.folder.glob("*/model.pth.tar-*"))[-1:]:
        part, last = path.parent.name, path.name
        states = [checkpoints.load(one.folder / part / last)["state_dict"] for one in (start, exact, rough)]
        names = [name for name in states[0] if "token" not in name]
        first, right, near = (torch.cat([one[name].float().flatten() for name in names]) for one in states)
        assert all(states[2][name].dtype == torch.float32 for name in names)
        assert (right - first).norm() > 0
        assert (near - right).norm() < 0.15 * (right - first).norm()
