"""Runners of one plan, killed with or without their runs, end with the results of an undisturbed one."""

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
    command = [sys.executable, "-m", "cocoamix", "bench", "run", "plan.yaml", "--gpus", "none", "-j", "2"]

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


def end(runner: subprocess.Popen[str], status: int = 0) -> str:
    """Wait for a runner to exit, check its status, and return its output."""
    output = runner.communicate(timeout=300)[0]
    assert runner.returncode == status, output[-2500:]
    assert "Traceback" not in output, output[-2500:]
    return output


def trained(folder: Path) -> dict[str, object]:
    """Return the outcomes of all trainings below a folder, and the table of the plan."""
    runs = sorted(path.parent for path in folder.rglob("results.json") if "train_base" in str(path))
    table = (folder / "tables" / "plan.md").read_text()
    return {"": table, **{str(run.relative_to(folder)): outcome(run) for run in runs if "Zeroshot" not in str(run)}}


def workers_of(folder: Path) -> list[int]:
    """Return the processes that have a console below a folder open: the runs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "fd" / "1").readlink().is_relative_to(folder):
                found.append(int(process.name))
        except OSError:  # it has ended, or is another user's
            pass
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_killed_runners_and_runs_change_nothing(
    start: Starter, tmp_path: Path, rng: random.Random, tally: Tally
) -> None:
    end(start("alone"))
    wanted = trained(tmp_path / "alone")
    assert len(wanted) == 7
    for victim in ("runner", "runner, by Ctrl-C", "run"):
        folder = tmp_path / victim
        runner = start(victim)
        while not workers_of(folder):
            assert runner.poll() is None
            time.sleep(0.1)
        if victim == "runner":
            for process in (stopped := workers_of(folder)):
                os.kill(process, signal.SIGSTOP)
            assert f"process {runner.pid} " in end(start(victim), 2)  # a second runner is refused
            for process in stopped:
                os.kill(process, signal.SIGCONT)
        time.sleep(rng.uniform(0, 8))
        if victim == "run":
            for process in workers_of(folder)[:1]:
                os.kill(process, signal.SIGKILL)
            output = end(runner, 1)
            assert "killed by SIGKILL" in output
        else:
            number = signal.SIGKILL if victim == "runner" else signal.SIGINT
            os.kill(runner.pid, number)
            end(runner, -9 if victim == "runner" else 130)
            time.sleep(1)
        assert workers_of(folder) == []
        end(start(victim))
        assert trained(folder) == wanted
        tally.count(f"killed {victim}")
