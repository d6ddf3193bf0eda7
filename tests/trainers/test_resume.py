"""A run that is killed and restarted ends like an uninterrupted one, bit for bit."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from cocoamix.io import checkpoints
from tests.conftest import Runner, command
from tests.faults.runs import Child

BASE = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base"]


def final(folder: Path, epoch: int) -> tuple[torch.Tensor, dict[str, Any]]:
    content = checkpoints.load(folder / "prompt_learner" / f"model.pth.tar-{epoch}")
    momentum = content["optimizer"]["state"][0]
    return content["state_dict"]["ctx"], momentum


def kill_after(child: Child, pattern: str) -> None:
    """Kill without warning as soon as a line matches."""
    end = time.monotonic() + 300
    while not re.search(pattern, child.output()):
        assert time.monotonic() < end, f"no {pattern}"
        time.sleep(0.002)
    child.kill()
    assert child.wait() == -signal.SIGKILL, f"ended before {pattern}"


def flush_each_line() -> None:
    """Write each line of this process to its log as soon as it is printed."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_run_killed_at_several_points_ends_identically(
    run: Runner, data_root: Path, tiny_config: Path, optimizer: str, tmp_path: Path
) -> None:
    settings = [*BASE, "OPTIM.MAX_EPOCH", "6", "OPTIM.NAME", optimizer, "TEST.FINAL_MODEL", "best_val"]
    whole = run(*settings, name="whole")
    killed, log = tmp_path / "killed", tmp_path / "killed.txt"

    def start() -> Child:
        log.write_text("")
        return Child(command(data_root, killed, tiny_config, *settings), log, flush_each_line)

    # In the middle of an epoch, during the validation after one, and once more right after a resume.
    for moment in (r"epoch \[2/6\] batch \[1/2\]", r"epoch \[4/6\] batch \[2/2\]", r"Resuming from"):
        kill_after(start(), moment)
    child = start()
    assert child.wait() == 0, child.output()[-800:]
    assert "Resuming from" in child.output()
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
    settings = [*BASE, "OPTIM.LR", "0.002", "OPTIM.MAX_EPOCH", "10"]
    with monkeypatch.context() as patch:
        stopping_at(4, patch)
        stopped = run(*settings)
    assert stopped.status == 130
    assert "resumes from the last complete epoch" in stopped.output
    output = run(*settings).output
    seen = [float(rate) for rate in re.findall(r"batch \[1/2\].* lr (\S+)", output)]
    assert seen == pytest.approx([0.001588, 0.001309, 0.001, 0.000691, 0.000412, 0.000191], abs=5e-7)


def stopping_at(epoch: int, patch: pytest.MonkeyPatch) -> None:
    """Make runs stop before an epoch, as Ctrl-C does."""
    from cocoamix.trainers.coop import CoOp

    original = CoOp.before_epoch

    def before_epoch(self: CoOp) -> None:
        if self.epoch == epoch:
            raise KeyboardInterrupt
        original(self)

    patch.setattr(CoOp, "before_epoch", before_epoch)


def test_run_without_a_seed_resumes_exactly(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The random seed is saved, so even such a run resumes exactly, including its few-shot draw."""
    settings = ["DATASET.SUBSAMPLE_CLASSES", "base", "DATASET.NUM_SHOTS", "2", "DATALOADER.TRAIN_X.BATCH_SIZE", "4"]
    with monkeypatch.context() as patch:
        stopping_at(2, patch)
        stopped = run(*settings, seed="-1")
    seed = checkpoints.load(stopped.folder / "resume.pth")["seed"]
    resumed = run(*settings, seed="-1")
    assert resumed.status == 0, resumed.output[-500:]
    assert resumed.results["seed"] == seed
    assert "2 of 4 epochs are done" in resumed.output
    assert run(*settings, seed="-1", name="other").results["seed"] != seed


def test_run_resumes_in_another_folder(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """--resume with another output folder: the best model is copied; a second start resumes from its own state."""
    settings = [*BASE, "TEST.FINAL_MODEL", "best_val", "OPTIM.LR", "0.5"]  # large, so that the best is not the last
    whole = run(*settings, name="whole")
    assert whole.results["epoch"] < 4
    with monkeypatch.context() as patch:
        stopping_at(3, patch)
        first = run(*settings, name="first")
    assert whole.results["epoch"] <= 3
    with monkeypatch.context() as patch:
        stopping_at(3, patch)
        run("--resume", str(first.folder), *settings, name="second")
    second = run("--resume", str(first.folder), *settings, name="second")
    assert second.results["epoch"] == whole.results["epoch"]
    assert second.results["metrics"] == whole.results["metrics"]
    assert torch.equal(final(whole.folder, 4)[0], final(second.folder, 4)[0])
    finished = run("--resume", str(whole.folder), *settings, name="third")
    assert finished.results["metrics"] == whole.results["metrics"]
    assert torch.equal(final(whole.folder, 4)[0], final(finished.folder, 4)[0])


class Killed(BaseException):
    """Simulates a kill: nothing catches it."""


def kill_before_epoch(stop: int, monkeypatch: pytest.MonkeyPatch, start: Callable[[], object]) -> None:
    """Start a run of CoCoA-Mix and kill it before an epoch."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    before_epoch = CoCoAMix.before_epoch

    def stopping(self: CoCoAMix) -> None:
        if self.epoch == stop:
            raise Killed
        before_epoch(self)

    with monkeypatch.context() as patch:
        patch.setattr(CoCoAMix, "before_epoch", stopping)
        with pytest.raises(Killed):
            start()


class TestBetweenAnyTwoFiles:
    """A run with two models, killed before or after every file that it writes."""

    SETTINGS = (*BASE, "TEST.FINAL_MODEL", "best_val", "TRAIN.CHECKPOINT_FREQ", "1", "OPTIM.MAX_EPOCH")

    @pytest.fixture
    def two_models(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """CoOp with a second trained parameter."""
        from cocoamix.trainers.coop import CoOp

        build, loss = CoOp.build_prompts, CoOp.compute_loss

        def build_two(self: CoOp) -> None:
            build(self)
            self.second = torch.nn.Linear(1, 1, bias=False, device=self.device)
            torch.nn.init.ones_(self.second.weight)
            self.register("second", self.second, self.cfg.OPTIM)

        def loss_of_two(self: CoOp, *args: torch.Tensor) -> Any:
            terms, logits = loss(self, *args)
            terms["loss"] = terms["loss"] * self.second.weight.squeeze()
            return terms, logits

        monkeypatch.setattr(CoOp, "build_prompts", build_two)
        monkeypatch.setattr(CoOp, "compute_loss", loss_of_two)

    @staticmethod
    def state(folder: Path) -> dict[str, Any]:
        found = {}
        for path in sorted(folder.rglob("model*")):
            content = checkpoints.load(path)
            found[str(path.relative_to(folder))] = (content["epoch"], content["state_dict"])
        return found

    @pytest.mark.parametrize("epochs", ["1", pytest.param("3", marks=pytest.mark.slow)])
    def test_run_killed_around_every_file_ends_identically(
        self, run: Runner, two_models: None, monkeypatch: pytest.MonkeyPatch, epochs: str
    ) -> None:
        import os

        settings = (*self.SETTINGS, epochs)

        replace = os.replace
        moves: list[str] = []

        def count(source: str, target: str) -> None:
            moves.append(str(target))
            replace(source, target)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", count)
            whole = run(*settings, name="whole")
        wanted = self.state(whole.folder)
        written = [move for move in moves if "whole" in move]
        assert len(written) > 4 * int(epochs)
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
            done = run(*settings, name=f"killed{number}")
            assert done.results["metrics"] == whole.results["metrics"], written[number]
            found = self.state(done.folder)
            assert found.keys() == wanted.keys()
            for name, (epoch, tensors) in wanted.items():
                assert found[name][0] == epoch, (written[number], name)
                assert all(torch.equal(tensors[key], found[name][1][key]) for key in tensors), (written[number], name)


def test_class_sampler_resumes_too(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [*BASE, "DATALOADER.TRAIN_X.SAMPLER", "RandomClassSampler", "DATALOADER.TRAIN_X.N_INS", "2"]
    whole = run(*settings, name="whole")
    with monkeypatch.context() as patch:
        stopping_at(2, patch)
        run(*settings, name="stopped")
    resumed = run(*settings, name="stopped")
    assert torch.equal(final(whole.folder, 4)[0], final(resumed.folder, 4)[0])


def test_same_weights_at_another_path_are_the_same_run(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cocoamix.clip.backbones import BACKBONES
    from cocoamix.clip.openai import build_openai

    torch.save(build_openai(BACKBONES["tiny"].sizes).state_dict(), tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes((tmp_path / "a.pt").read_bytes())
    with monkeypatch.context() as patch:
        stopping_at(2, patch)
        run(*BASE, "MODEL.BACKBONE.WEIGHTS", str(tmp_path / "a.pt"))
    assert run(*BASE, "MODEL.BACKBONE.WEIGHTS", str(tmp_path / "b.pt")).status == 0


def test_finished_run_is_only_tested(run: Runner, shared_run: Runner) -> None:
    first = shared_run(*BASE)
    second = run(*BASE)
    assert "4 of 4 epochs are done" in second.output
    assert "epoch [" not in second.output
    assert first.results["metrics"] == second.results["metrics"]


def test_other_settings_are_refused(run: Runner, shared_run: Runner) -> None:
    before = checkpoints.load(shared_run(*BASE).folder / "resume.pth")
    other = run(*BASE, "OPTIM.LR", "0.01")
    assert other.status == 2
    assert "OPTIM.LR was 0.02 and is 0.01" in other.output
    assert torch.equal(
        before["models"]["prompt_learner"]["ctx"],
        checkpoints.load(other.folder / "resume.pth")["models"]["prompt_learner"]["ctx"],
    )


def test_run_resumes_from_checkpoints_without_resume_file(run: Runner, tmp_path: Path) -> None:
    """CoOp's layout without our resume file, as left by Dassl: weights, momentum and rate continue."""
    settings = [*BASE, "OPTIM.MAX_EPOCH", "6", "TRAIN.CHECKPOINT_FREQ", "3"]
    whole = run(*settings, name="whole")
    folder = whole.folder / "prompt_learner"
    (folder / "checkpoint").write_text("model.pth.tar-3\n")
    (whole.folder / "resume.pth").unlink()
    other = run("--resume", str(whole.folder), *settings, "OPTIM.LR", "0.5", name="other")
    assert "OPTIM.LR was 0.02 and is 0.5" in other.output
    resumed = run("--resume", str(whole.folder), *settings, name="resumed")
    assert "3 of 6 epochs are done" in resumed.output
    assert torch.equal(final(whole.folder, 6)[0], final(resumed.folder, 6)[0])


def test_missing_folder_to_resume_is_refused(run: Runner, tmp_path: Path) -> None:
    done = run("--resume", str(tmp_path / "nowhere"), *BASE)
    assert done.status == 2
    assert "nowhere" in done.output


def test_concurrent_runs_do_not_affect_each_other(
    shared_run: Runner, data_root: Path, tiny_config: Path, tmp_path: Path
) -> None:
    alone = shared_run(*BASE, name="alone")
    together = [
        Child(command(data_root, tmp_path / name, tiny_config, *BASE), tmp_path / f"{name}.txt")
        for name in ("one", "two")
    ]
    for child in together:
        assert child.wait() == 0, child.output()[-800:]
    for name in ("one", "two"):
        assert torch.equal(final(alone.folder, 4)[0], final(tmp_path / name, 4)[0])
