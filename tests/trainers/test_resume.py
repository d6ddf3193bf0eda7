"""A run that is killed and started again ends where an uninterrupted one ends, bit by bit."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cocoamix import checkpoints
from tests.conftest import Runner

BASE = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base"]
Starter = Callable[..., "subprocess.Popen[str]"]


def final(folder: Path, epoch: int) -> tuple[torch.Tensor, dict[str, Any]]:
    content = checkpoints.load(folder / "prompt_learner" / f"model.pth.tar-{epoch}")
    momentum = content["optimizer"]["state"][0]
    return content["state_dict"]["ctx"], momentum


def kill_after(process: subprocess.Popen[str], pattern: str) -> None:
    """Kill without warning as soon as a line matches."""
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(pattern, line):
            process.send_signal(signal.SIGKILL)
            process.wait()
            return
    raise AssertionError(f"ended before {pattern}")


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_killed_at_several_moments(run: Runner, start: Starter, optimizer: str, tmp_path: Path) -> None:
    settings = [*BASE, "OPTIM.MAX_EPOCH", "6", "OPTIM.NAME", optimizer, "TEST.FINAL_MODEL", "best_val"]
    whole = run(*settings, name="whole")
    # In the middle of an epoch, during the validation after one, and once more right after a resume.
    for moment in (r"epoch \[2/6\] batch \[1/2\]", r"epoch \[4/6\] batch \[2/2\]", r"Resuming from"):
        kill_after(start(*settings, name="killed"), moment)
    process = start(*settings, name="killed")
    output = process.communicate()[0]
    assert process.returncode == 0, output[-800:]
    assert "Resuming from" in output
    killed = tmp_path / "killed"
    (wanted, momentum), (context, resumed) = final(whole.folder, 6), final(killed, 6)
    assert torch.equal(wanted, context)
    assert momentum.keys() == resumed.keys()
    for key, value in momentum.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(resumed[key])), key
    best = [checkpoints.load(f / "prompt_learner" / "model-best.pth.tar") for f in (whole.folder, killed)]
    assert best[0]["epoch"] == best[1]["epoch"]
    assert best[0]["val_result"] == best[1]["val_result"]
    assert whole.results["metrics"] == json.loads((killed / "results.json").read_text())["metrics"]


def test_learning_rates_after_a_resume(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    from cocoamix.trainers.coop import CoOp

    settings = [*BASE, "OPTIM.LR", "0.002", "OPTIM.MAX_EPOCH", "10"]
    original = CoOp.before_epoch

    def stop_at_four(self: CoOp) -> None:
        if self.epoch == 4:
            raise KeyboardInterrupt
        original(self)

    with monkeypatch.context() as patch:
        patch.setattr(CoOp, "before_epoch", stop_at_four)
        stopped = run(*settings)
    assert stopped.status == 130
    assert "goes on from the last whole epoch" in stopped.output
    output = run(*settings).output
    seen = [float(rate) for rate in re.findall(r"batch \[1/2\].* lr (\S+)", output)]
    assert seen == pytest.approx([0.001588, 0.001309, 0.001, 0.000691, 0.000412, 0.000191], abs=5e-7)


def test_without_a_seed(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drawn seed is kept, so that even such a run goes on as it began."""
    from cocoamix.trainers.coop import CoOp

    original = CoOp.before_epoch
    seeds = []

    def stop_at_two(self: CoOp) -> None:
        seeds.append(self.seed)
        if self.epoch == 2:
            raise KeyboardInterrupt
        original(self)

    settings = ["DATASET.SUBSAMPLE_CLASSES", "base"]
    with monkeypatch.context() as patch:
        patch.setattr(CoOp, "before_epoch", stop_at_two)
        run(*settings, seed="-1")
    assert run(*settings, seed="-1").results["seed"] == seeds[0]


def test_finished_run_is_only_tested(run: Runner) -> None:
    first = run(*BASE)
    second = run(*BASE)
    assert "4 of 4 epochs are done" in second.output
    assert "epoch [" not in second.output
    assert first.results["metrics"] == second.results["metrics"]


def test_other_settings_are_refused(run: Runner) -> None:
    run(*BASE)
    before = checkpoints.load(run(*BASE).folder / "resume.pth")
    other = run(*BASE, "OPTIM.LR", "0.01")
    assert other.status == 2
    assert "OPTIM.LR was 0.02 and is 0.01" in other.output
    assert torch.equal(
        before["models"]["prompt_learner"]["ctx"],
        checkpoints.load(other.folder / "resume.pth")["models"]["prompt_learner"]["ctx"],
    )


def test_going_on_from_checkpoints_alone(run: Runner, tmp_path: Path) -> None:
    """CoOp's layout without our resume file, as a Dassl run leaves it: weights, momentum and rate go on."""
    settings = [*BASE, "OPTIM.MAX_EPOCH", "6", "TRAIN.CHECKPOINT_FREQ", "3"]
    whole = run(*settings, name="whole")
    folder = whole.folder / "prompt_learner"
    (folder / "checkpoint").write_text("model.pth.tar-3\n")
    (whole.folder / "resume.pth").unlink()
    resumed = run("--resume", str(whole.folder), *settings, name="resumed")
    assert "3 of 6 epochs are done" in resumed.output
    assert torch.equal(final(whole.folder, 6)[0], final(resumed.folder, 6)[0])


def test_resume_from_nothing(run: Runner, tmp_path: Path) -> None:
    done = run("--resume", str(tmp_path / "nowhere"), *BASE)
    assert done.status == 2
    assert "nowhere" in done.output


def test_beside_another_run(run: Runner, start: Starter, tmp_path: Path) -> None:
    alone = run(*BASE, name="alone")
    together = [start(*BASE, name=name) for name in ("one", "two")]
    for process in together:
        output = process.communicate()[0]
        assert process.returncode == 0, output[-800:]
    for name in ("one", "two"):
        assert torch.equal(final(alone.folder, 4)[0], final(tmp_path / name, 4)[0])
