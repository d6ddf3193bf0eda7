"""A finished run is trained for more epochs only with its flag, on the longer run's schedule, and records it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cocoamix import plugin
from cocoamix.io import checkpoints
from tests.conftest import Run, Runner, command, own_stdout
from tests.trainers.test_resume import stopping_at


def rates(done: Run) -> list[float]:
    """The learning rate of each trained epoch."""
    found = re.findall(r"epoch \[(\d+)/\d+\].* lr ([\d.e+-]+)", done.output)
    return [float(rate) for _, rate in dict(found).items()]


def epochs(number: int) -> tuple[str, str]:
    return "OPTIM.MAX_EPOCH", str(number)


@pytest.mark.parametrize("warmup", ["0", "1"])
def test_longer_run_follows_its_own_schedule(run: Runner, warmup: str) -> None:
    same = ("OPTIM.WARMUP_EPOCH", warmup, "OPTIM.LR_SCHEDULER", "cosine")
    first = run(*epochs(2), *same)
    assert "continued_after" not in first.results["protocol"]
    refused = run(*epochs(4), *same)
    assert refused.status == 2
    assert "--more-epochs" in refused.output
    longer = run("--more-epochs", *epochs(4), *same)
    assert longer.status == 0, longer.output
    assert (longer.results["epoch"], longer.results["protocol"]["continued_after"]) == (4, [2])
    assert "differs from a run of 4" in longer.output
    assert (longer.folder / "results-2.json").is_file()
    fresh = run(*epochs(4), *same, name="long")
    assert rates(longer) == rates(fresh)[2:]
    assert longer.results["fingerprint"] != fresh.results["fingerprint"]
    again = run(*epochs(4), *same)  # a resume needs no flag
    assert "4 of 4 epochs are done" in again.output
    assert again.results["protocol"]["continued_after"] == [2]
    origin = checkpoints.load(longer.folder / "prompt_learner" / "model.pth.tar-4")["cocoamix"]
    assert origin["protocol"]["continued_after"] == [2]


def test_flag_continues_only_finished_runs(run: Runner) -> None:
    empty = run("--more-epochs", *epochs(2))
    assert (empty.status, "without it first" in empty.output) == (2, True)
    run(*epochs(2))
    fewer = run("--more-epochs", *epochs(1))
    assert (fewer.status, "above 2" in fewer.output) == (2, True)
    other = run("--more-epochs", *epochs(4), "OPTIM.LR", "0.5")
    assert (other.status, "OPTIM.LR was" in other.output) == (2, True)
    assert other.results["epoch"] == 2  # nothing was changed
    assert "2 of 2 epochs are done" in run(*epochs(2)).output


def test_a_restarted_run_does_not_count_as_continued(run: Runner) -> None:
    run(*epochs(1))
    done = run("--more-epochs", *epochs(2))
    assert done.results["protocol"]["continued_after"] == [1]
    (done.folder / "resume.pth").unlink()
    shutil.rmtree(done.folder / "prompt_learner")
    (done.folder / "results.json").unlink()
    assert "continued_after" not in run(*epochs(2)).results["protocol"]
    assert run(*epochs(2)).status == 0


def test_flag_is_refused_for_evaluations(run: Runner) -> None:
    refused = run("--more-epochs", "--eval-only", "--model-dir", "nowhere")
    assert (refused.status, "--more-epochs trains" in refused.output) == (2, True)


# Trains as the train.py of another tree does, which does not know --more-epochs.
OTHER_TREE = """
import sys
from dassl.engine import build_trainer
from cocoamix.train import parse_arguments, setup_cfg
build_trainer(setup_cfg(parse_arguments(sys.argv[1:]))).train()
"""


@pytest.fixture
def interrupted(run: Runner, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Run]:
    """Train for two epochs, continue to four, and stop after the third."""

    def make() -> Run:
        run(*epochs(2))
        with monkeypatch.context() as patch:
            stopping_at(3, patch)
            return run("--more-epochs", *epochs(4))

    return make


def test_another_tree_resumes_a_continued_run(
    interrupted: Callable[[], Run], data_root: Path, tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = interrupted().folder
    script = tmp_path / "tree" / "train.py"
    script.parent.mkdir()
    script.write_text(OTHER_TREE)
    monkeypatch.setattr("sys.argv", [])
    with own_stdout():
        assert plugin.main([str(script), *command(data_root, folder, tiny_config, *epochs(4))]) == 0
    results = json.loads((folder / "results.json").read_text())
    assert (results["epoch"], results["protocol"].get("continued_after")) == (4, [2])
    origin = checkpoints.load(folder / "prompt_learner" / "model.pth.tar-4")["cocoamix"]
    assert origin["protocol"]["continued_after"] == [2]
    assert checkpoints.load(folder / "resume.pth")["protocol"]["continued_after"] == [2]


def test_a_continued_run_is_resumed_elsewhere(interrupted: Callable[[], Run], run: Runner) -> None:
    first = interrupted()
    other = run("--resume", str(first.folder), *epochs(4), name="other")
    assert other.results["protocol"].get("continued_after") == [2]
    assert f"protocol  {other.results['fingerprint']}" in other.output  # the overview has it, too


def test_a_continued_run_is_recognised_without_its_state(interrupted: Callable[[], Run], run: Runner) -> None:
    """Its checkpoints say that it was continued."""
    folder = interrupted().folder
    finished = run(*epochs(4))
    assert finished.status == 0, finished.output[-500:]
    (folder / "resume.pth").unlink()
    again = run(*epochs(4))
    assert "4 of 4 epochs are done" in again.output
    assert again.results["protocol"].get("continued_after") == [2]


def test_a_run_killed_while_it_is_extended_is_unchanged(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has changed then: the run is still finished, and can be continued."""

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    run(*epochs(1))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save", kill)
        assert run("--more-epochs", *epochs(2)).status == 130
    again = run(*epochs(1))
    assert again.status == 0, again.output[-500:]
    assert "continued_after" not in again.results["protocol"]
    assert run("--more-epochs", *epochs(2)).results["protocol"]["continued_after"] == [1]


@pytest.mark.parametrize("value", ["two", [2.5], {"after": 2}])
def test_a_damaged_continuation_is_refused(interrupted: Callable[[], Run], run: Runner, value: object) -> None:
    path = interrupted().folder / "resume.pth"
    state = checkpoints.load(path)
    state["protocol"]["continued_after"] = value
    checkpoints.save(path, state)
    done = run(*epochs(4))
    assert (done.status, "its continued_after is not a list of numbers" in done.output) == (2, True)
