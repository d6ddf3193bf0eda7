"""Two runners of one plan in one folder, killed or not, do each run once and both succeed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT

from .conftest import Tally
from .runs import outcome

PLAN = {
    "task": "base2new",
    "datasets": ["colour_shape"],
    "shots": 1,
    "seeds": [1, 2, 3],
    "store": "features",
    "set": {"OPTIM.MAX_EPOCH": 2},
    "methods": [
        {"trainer": "ZeroshotCLIP", "config": "tiny", "train": False},
        {"trainer": "CoOp", "config": "tiny"},
        {"trainer": "CoCoAMix", "config": "tiny"},
    ],
}
Starter = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Starter:
    """Start a runner on the plan into a folder."""
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    command = [
        sys.executable,
        "-m",
        "cocoamix",
        "bench",
        "run",
        "plan.yaml",
        "--no-report",
        "--gpus",
        "none",
        "-j",
        "2",
    ]

    def starter(output: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*command, "--output", output],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    return starter


def end(runner: subprocess.Popen[str]) -> str:
    """Wait for a runner to exit, check that it succeeded, and return its output."""
    output = runner.communicate(timeout=300)[0]
    assert runner.returncode == 0, output[-2500:]
    assert "Traceback" not in output, output[-2500:]
    return output


def trained(folder: Path) -> dict[str, object]:
    """Return the outcomes of all trainings below a folder."""
    runs = sorted(path.parent for path in folder.rglob("results.json") if "train_base" in str(path))
    return {str(run.relative_to(folder)): outcome(run) for run in runs if "Zeroshot" not in str(run)}


@pytest.mark.slow
def test_two_runners_do_each_run_once(start: Starter, tmp_path: Path, rng: random.Random, tally: Tally) -> None:
    end(start("alone"))
    wanted = trained(tmp_path / "alone")
    assert len(wanted) == 6
    for number in range(3):
        output = f"together{number}"
        runners = [start(output), start(output)]
        fault = "two runners at once"
        if number:  # one of them is killed, with or without a chance to stop its runs
            time.sleep(rng.uniform(5, 20))
            how = (signal.SIGKILL, signal.SIGINT)[number - 1]
            victim = runners[rng.randrange(2)]
            os.kill(victim.pid, how)
            victim.communicate(timeout=60)
            runners.remove(victim)
            runners.append(start(output))
            fault = f"two runners, one ended by {how.name}"
        for runner in runners:
            end(runner)
        assert trained(tmp_path / output) == wanted
        for console in (tmp_path / output).rglob("console.txt"):
            if not number:
                assert console.read_text().count("\nprotocol  ") <= 1, f"{console} shows two runs"
        tally.count(fault)
