"""Runs of any trainer: what they resume from and refuse, what they write, and which numbers they report."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cocoamix.io import checkpoints
from cocoamix.run.checkpointer import RESUME
from cocoamix.trainers.coop import CoOpModel
from tests.conftest import Runner
from tests.faults.runs import outcome
from tests.trainers.kinds import BASE, KINDS, TWO, Killed, context, equal, evaluate, killed_at, watch_steps

SHORT = [*BASE, "OPTIM.MAX_EPOCH", "1"]
NEW = [*BASE[:3], "new"]
BEST = ["TEST.FINAL_MODEL", "best_val"]

# ---------------------------------------------------------------------- resuming


def test_killed_around_every_file_ends_identically(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with two parts, killed before each file that it writes is in place."""
    init = CoOpModel.__init__

    def with_second_part(self: Any, *given: Any) -> None:
        init(self, *given)
        self.parts["second"] = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.parts["second"].weight)

    def scaled(self: Any, features: Tensor, text: Tensor, labels: Tensor) -> Any:
        losses = text_loss(self, features, text, labels)
        losses.total = losses.total * self.parts["second"].weight.squeeze()
        return losses

    text_loss = CoOpModel.text_loss
    monkeypatch.setattr(CoOpModel, "__init__", with_second_part)
    monkeypatch.setattr(CoOpModel, "text_loss", scaled)
    settings = [*SHORT, *BEST]
    replace, moves = os.replace, []

    def count(source: str, target: str) -> None:
        moves.append(str(target))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", count)
        whole = run(*settings, name="whole")
    written = [move for move in moves if "whole" in move]
    assert len(written) > 4
    for number in range(len(written)):
        left = [number]

        def kill(source: str, target: str, left: list[int] = left) -> None:
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", kill)
            with pytest.raises(Killed):
                run(*settings, name=f"killed{number}")
        assert outcome(run(*settings, name=f"killed{number}").folder) == outcome(whole.folder), written[number]


def test_resuming_in_another_folder_and_without_a_seed(run: Runner) -> None:
    """The best model is copied; a second start resumes from its own state. A drawn seed is kept."""
    settings = [*BASE, *BEST, "OPTIM.LR", "0.5"]  # large, so that the best is not the last
    whole = run(*settings, name="whole")
    assert whole.results["epoch"] <= 3
    with killed_at(None, 3):
        run(*settings, name="first")
    first = str(whole.folder.with_name("first"))
    with killed_at(None, 3):
        run("--resume", first, *settings, name="second")
    for name, source in (("second", first), ("third", str(whole.folder))):
        done = run("--resume", source, *settings, name=name)
        assert (done.results["epoch"], done.results["metrics"]) == (whole.results["epoch"], whole.results["metrics"])
        assert torch.equal(context(done), context(whole))
    few = [*BASE, "DATASET.NUM_SHOTS", "2", "DATALOADER.TRAIN_X.BATCH_SIZE", "4"]
    with killed_at(None, 2):
        run(*few, seed="-1")
    seed = checkpoints.load(whole.folder.with_name("run") / RESUME)["seed"]
    resumed = run(*few, seed="-1")
    assert resumed.results["seed"] == seed
    assert "2 of 4 epochs are done" in resumed.output
    assert run(*few, seed="-1", name="other").results["seed"] != seed


def test_resuming_from_checkpoints_alone(run: Runner) -> None:
    """CoOp's layout, as left by Dassl: weights, momentum and rate continue; not within folds."""
    settings = [*BASE, "OPTIM.MAX_EPOCH", "6", "TRAIN.CHECKPOINT_FREQ", "3"]
    whole = run(*settings, name="whole")
    (whole.folder / "prompt_learner" / "checkpoint").write_text("model.pth.tar-3\n")
    (whole.folder / RESUME).unlink()
    other = run("--resume", str(whole.folder), *settings, "OPTIM.LR", "0.5", name="other")
    assert (other.status, "OPTIM.LR" in other.output) == (2, True)
    resumed = run("--resume", str(whole.folder), *settings, name="resumed")
    assert "3 of 6 epochs are done" in resumed.output
    assert torch.equal(context(resumed, 6), context(whole, 6))
    trainer, folds = KINDS["CoCoAMix, folds"]
    with killed_at(None, 5):
        run(*folds, "TRAIN.CHECKPOINT_FREQ", "1", trainer=trainer, name="folds")
    (whole.folder.with_name("folds") / RESUME).unlink()
    lacking = run(*folds, "TRAIN.CHECKPOINT_FREQ", "1", trainer=trainer, name="folds")
    assert (lacking.status, RESUME in lacking.output) == (2, True)


def test_what_is_not_the_same_run_is_refused(run: Runner, shared_run: Runner, tmp_path: Path) -> None:
    before = checkpoints.load(shared_run(*BASE).folder / RESUME)["models"]["prompt_learner"]
    for key, value in (("OPTIM.LR", "0.01"), ("TRAINER.COOP.N_CTX", "2")):
        done = run(*BASE, key, value)
        assert (done.status, key in done.output) == (2, True), done.output[-300:]
    assert equal(before, checkpoints.load(tmp_path / "run" / RESUME)["models"]["prompt_learner"])
    nowhere = run("--resume", str(tmp_path / "nowhere"), *BASE, name="other")
    assert (nowhere.status, "nowhere" in nowhere.output) == (2, True)
    trainer, settings = "TuneEn", [*SHORT, *TWO, "OPTIM.MAX_EPOCH", "2", "TRAINER.ENLEARN.PROMPTS"]
    prompts = [shared_run(*SHORT, "MODEL.BACKBONE.WEIGHTS", weights, name=f"p{weights}") for weights in ("", "random")]
    given = str([str(one.folder) for one in prompts])
    with killed_at(None, 1):
        run(*settings, given, trainer=trainer, name="tuned")
    path = prompts[0].folder / "prompt_learner" / "model.pth.tar-1"
    content = checkpoints.load(path)
    content["state_dict"]["ctx"] += 0.01
    checkpoints.save(path, content)
    changed = run(*settings, given, trainer=trainer, name="tuned")
    assert (changed.status, "TRAINER.ENLEARN.PROMPTS" in changed.output) == (2, True)
    done = run(*settings, given, trainer=trainer, name="whole")
    assert done.results["protocol"]["prompts"] == ["4 learned vectors"] * 2
    content["state_dict"]["ctx"] += 0.01
    checkpoints.save(path, content)
    assert "not" in evaluate(run, done, *SHORT, *TWO, trainer=trainer, name="noted").output
    swapped = run(*settings, str([str(one.folder) for one in prompts[::-1]]), trainer=trainer, name="swapped")
    assert (swapped.status, "tiny" in swapped.output) == (2, True)


# ---------------------------------------------------------------------- files and lines


def test_files_and_lines_of_coop(run: Runner, shared_run: Runner) -> None:
    trained = shared_run(*BASE, *BEST, "TRAIN.CHECKPOINT_FREQ", "2")
    folder = trained.folder / "prompt_learner"
    best = checkpoints.load(folder / "model-best.pth.tar")
    assert trained.results["epoch"] == best["epoch"]
    assert best["val_result"] > 0
    names = {"checkpoint", "model.pth.tar-2", "model.pth.tar-4", "model-best.pth.tar"}
    assert {path.name for path in folder.iterdir()} == names
    assert (folder / "checkpoint").read_text() == "model.pth.tar-4\n"
    content = checkpoints.load(folder / "model.pth.tar-4")
    assert {"state_dict", "epoch", "optimizer", "scheduler", "val_result"} <= set(content)
    assert set(content["state_dict"]) == {"ctx", "token_prefix", "token_suffix"}
    line = r"^epoch \[4/4\] batch \[2/2\] time .* data .* loss .* acc .* lr .* eta 0:00:00$"
    assert re.search(line, trained.log, re.MULTILINE)
    assert "Finish training" in trained.log
    accuracy = re.findall(r"\* accuracy: ([\d.]+)%", trained.log)[-1]
    assert float(accuracy) == pytest.approx(trained.results["metrics"]["accuracy"], abs=0.005)
    last = evaluate(run, trained, "--load-epoch", "4", *BASE, *BEST, trainer="CoOp", name="last")
    assert (last.results["epoch"], last.results["protocol"]["model_selection"]) == (4, "last_step")
    again = evaluate(run, trained, *NEW, trainer="CoOp", name="run")  # in the folder of the training
    kept = [json.loads(path.read_text())["subset"] for path in sorted(again.folder.glob("results.json*"))]
    assert kept == ["new", "base"]


def test_learning_rates_of_the_standard_recipe(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """CoOp's; DePT's head learns 6.5 times as fast, weights at WEIGHT_LR, after the same warm-up."""
    output = run(*BASE, "OPTIM.LR", "0.002", "OPTIM.MAX_EPOCH", "10").output
    rates = [float(rate) for rate in re.findall(r"batch \[1/2\].* lr (\S+)", output)]
    wanted = [1e-5, 0.002, 0.001951, 0.001809, 0.001588, 0.001309, 0.001, 0.000691, 0.000412, 0.000191]
    assert rates == pytest.approx(wanted, abs=5e-7)
    for trainer, part, other in (
        ("DePT", "channel_head", "PromptLearner"),
        ("CoCoAMix", "coa_weights", "prompt_learner"),
    ):
        with monkeypatch.context() as patch:
            steps = watch_steps(patch)
            few = ["OPTIM.MAX_EPOCH", "3", "TRAINER.COCOAMIX.WEIGHT_LR", "0.13"]
            assert run(*BASE, *few, trainer=trainer, name=trainer).status == 0
        assert steps[0].rates == {part: 1e-5, other: 1e-5}
        assert all(step.rates[part] == pytest.approx(6.5 * step.rates[other]) for step in steps[2:])


def test_seeds_workers_and_staged_rates(run: Runner, shared_run: Runner) -> None:
    plain = shared_run(*BASE)
    helped = run(*BASE, "DATALOADER.NUM_WORKERS", "2", name="helped")
    assert torch.equal(context(plain), context(helped))
    zero = [run(*BASE, name=name, seed="0") for name in ("a", "b")]
    assert torch.equal(*(context(one) for one in zero))
    assert not torch.equal(context(zero[0]), context(plain))
    # As DePT's train.py sets it, where all of Dassl's own groups are empty.
    groups = ["OPTIM.STAGED_LR", "True", "OPTIM.NEW_LAYERS", "['linear_probe','film']", "OPTIM.BASE_LR_MULT"]
    staged, slower = (run(*BASE, *groups, value, name=value) for value in ("1.0", "0.5"))
    assert torch.equal(context(staged), context(plain))
    assert not torch.equal(context(slower), context(plain))
    assert len({one.results["fingerprint"] for one in (plain, staged, slower)}) == 3
    again = evaluate(run, slower, *BASE, trainer="CoOp", name="again")
    assert again.results["fingerprint"] == slower.results["fingerprint"]


@pytest.mark.parametrize("fault", ["left out", "idle"])
def test_training_without_any_update_is_refused(run: Runner, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    from cocoamix.run import optimisation

    class Idle(torch.optim.SGD):
        def step(self, *_: object) -> None:  # type: ignore[override]
            pass

    def build(groups: Any, optim: object) -> torch.optim.Optimizer:
        left_out = [nn.Parameter(torch.zeros(1))]
        return torch.optim.SGD(left_out, lr=0.02) if fault == "left out" else Idle(groups, lr=0.02)

    monkeypatch.setattr(optimisation, "build_optimizer", build)
    done = run(*BASE)
    assert (done.status, "prompt_learner" in done.output) == (2, True)
    assert not (done.folder / "results.json").exists()
    assert not list(done.folder.glob("prompt_learner/model*"))
