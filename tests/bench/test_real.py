"""The runner on this project's own train.py, with the tiny CLIP."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from cocoamix.bench.command import main
from cocoamix.bench.engines.warm import can_fork
from cocoamix.bench.stamp import CONSOLE
from tests.conftest import ROOT, write_dataset

MODEL = "prompt_learner/model.pth.tar-1"

PLAN = {
    "task": "base2new",
    "datasets": ["eurosat"],
    "root": "data",
    "shots": 1,
    "seeds": [1],
    "store": "features",
    "set": {"OPTIM.MAX_EPOCH": 1},
    "methods": [{"trainer": "CoOp", "config": "tiny"}],
}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small dataset and the plan, as the current folder."""
    write_dataset(tmp_path / "data")
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plan_trains_evaluates_and_is_then_finished(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "plan.yaml", "--no-report", "--gpus", "none"]
    # An unknown key is reported before anything is started.
    assert main([*arguments, "--set", "OPTIM.LRR", "1"]) == 2
    assert "OPTIM.LRR, which is not a configuration key" in capsys.readouterr().err
    assert not Path("output").exists()

    assert main(arguments) == 0, capsys.readouterr().err
    parts = [f"output/base2new/{part}/eurosat/shots_1/CoOp/tiny/seed1" for part in ("train_base", "test_new")]
    results = [json.loads(Path(part, "results.json").read_text()) for part in parts]
    assert [one["subset"] for one in results] == ["base", "new"]
    assert list(Path("output/features").iterdir())
    capsys.readouterr()

    # results.json and its settings are enough to count as finished; the runner's own notes are not needed.
    for part in parts:
        Path(part, "bench.json").unlink()
    assert main(arguments) == 0
    assert "2 were finished before" in capsys.readouterr().out
    assert main([*arguments, "--set", "OPTIM.LR", "0.5"]) == 1
    assert "OPTIM.LR was 0.002 and is 0.5" in capsys.readouterr().err


def test_forked_runs_match_fresh_processes() -> None:
    common = ["run", "plan.yaml", "--no-report", "--gpus", "none", "--only", "CoOp * base"]
    assert main([*common, "--output", "forked"]) == 0
    fresh = shlex.join([sys.executable, str(ROOT / "train.py")])
    assert main([*common, "--output", "fresh", "--train", fresh]) == 0
    run = "base2new/train_base/eurosat/shots_1/CoOp/tiny/seed1"
    one, other = (torch.load(Path(top, run, MODEL), weights_only=True)["state_dict"] for top in ("forked", "fresh"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert "\nseed      1\n" in Path("forked", run, CONSOLE).read_text()


@pytest.mark.skipif(not can_fork(()), reason="runs are not forked on this system")
def test_forked_runs_exit_when_their_runner_is_killed(place: Path) -> None:
    (place / "plan.yaml").write_text(yaml.safe_dump({**PLAN, "set": {"OPTIM.MAX_EPOCH": 5000, "CACHE.MODE": "test"}}))
    command = [sys.executable, "-m", "cocoamix", "bench", "run", "plan.yaml", "--gpus", "none"]
    runner = subprocess.Popen(command, cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT)})
    console = place / "output/base2new/train_base/eurosat/shots_1/CoOp/tiny/seed1" / CONSOLE
    try:
        assert wait_for(lambda: console.is_file() and "epoch [2/5000]" in console.read_text())
    finally:
        runner.kill()
        runner.wait()
    # The run holds the lock of its console until it exits.
    assert wait_for(lambda: is_free(console))


def wait_for(happened: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def is_free(path: Path) -> bool:
    """Return whether no process holds the lock of a file."""
    import fcntl

    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
