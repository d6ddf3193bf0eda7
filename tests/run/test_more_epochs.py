"""A finished run is trained for more epochs only by its flag, on the schedule of the longer run, and says so."""

from __future__ import annotations

import re
import shutil

import pytest

from cocoamix.io import checkpoints
from tests.conftest import Run, Runner


def rates(done: Run) -> list[float]:
    """The learning rate of each epoch that was trained."""
    found = re.findall(r"epoch \[(\d+)/\d+\].* lr ([\d.e+-]+)", done.output)
    return [float(rate) for _, rate in dict(found).items()]


def epochs(number: int) -> tuple[str, str]:
    return "OPTIM.MAX_EPOCH", str(number)


@pytest.mark.parametrize("warmup", ["0", "1"])
def test_longer_run(run: Runner, warmup: str) -> None:
    same = ("OPTIM.WARMUP_EPOCH", warmup, "OPTIM.LR_SCHEDULER", "cosine")
    first = run(*epochs(2), *same)
    assert "continued_after" not in first.results["protocol"]
    refused = run(*epochs(4), *same)
    assert refused.status == 2
    assert "--more-epochs" in refused.output
    longer = run("--more-epochs", *epochs(4), *same)
    assert longer.status == 0, longer.output
    assert (longer.results["epoch"], longer.results["protocol"]["continued_after"]) == (4, [2])
    assert "differs from that of a run of 4" in longer.output
    assert (longer.folder / "results-2.json").is_file()
    fresh = run(*epochs(4), *same, name="long")
    assert rates(longer) == rates(fresh)[2:]
    assert longer.results["fingerprint"] != fresh.results["fingerprint"]
    again = run(*epochs(4), *same)  # a resume needs no flag
    assert "4 of 4 epochs are done" in again.output
    assert again.results["protocol"]["continued_after"] == [2]
    origin = checkpoints.load(longer.folder / "prompt_learner" / "model.pth.tar-4")["cocoamix"]
    assert origin["protocol"]["continued_after"] == [2]


def test_it_continues_finished_runs_only(run: Runner) -> None:
    empty = run("--more-epochs", *epochs(2))
    assert (empty.status, "without it first" in empty.output) == (2, True)
    run(*epochs(2))
    fewer = run("--more-epochs", *epochs(1))
    assert (fewer.status, "above 2" in fewer.output) == (2, True)
    other = run("--more-epochs", *epochs(4), "OPTIM.LR", "0.5")
    assert (other.status, "OPTIM.LR was" in other.output) == (2, True)
    assert other.results["epoch"] == 2  # nothing was touched
    assert "2 of 2 epochs are done" in run(*epochs(2)).output


def test_a_run_that_starts_again_was_not_continued(run: Runner) -> None:
    run(*epochs(1))
    done = run("--more-epochs", *epochs(2))
    assert done.results["protocol"]["continued_after"] == [1]
    (done.folder / "resume.pth").unlink()
    shutil.rmtree(done.folder / "prompt_learner")
    (done.folder / "results.json").unlink()
    assert "continued_after" not in run(*epochs(2)).results["protocol"]
    assert run(*epochs(2)).status == 0


def test_it_does_not_go_with_an_evaluation(run: Runner) -> None:
    refused = run("--more-epochs", "--eval-only", "--model-dir", "nowhere")
    assert (refused.status, "--more-epochs trains" in refused.output) == (2, True)
