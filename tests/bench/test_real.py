"""The runner on this project's own train.py, with the embedded default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cocoamix.bench.__main__ import main

PLAN = {
    "task": "base2new",
    "datasets": ["shapes"],
    "shots": 1,
    "seeds": [1],
    "store": "features",
    "set": {"OPTIM.MAX_EPOCH": 1},
    "methods": [{"trainer": "CoOp", "config": "tiny"}],
}


def test_real_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plan.yaml").write_text(yaml.safe_dump(PLAN))
    arguments = ["run", "plan.yaml", "--no-report", "--gpus", "none"]
    # A key that does not exist is told before anything is started.
    assert main([*arguments, "--set", "OPTIM.LRR", "1"]) == 2
    assert "OPTIM.LRR, which is no configuration key" in capsys.readouterr().err
    assert not Path("output").exists()

    assert main(arguments) == 0, capsys.readouterr().err
    parts = [f"output/base2new/{part}/shapes/shots_1/CoOp/tiny/seed1" for part in ("train_base", "test_new")]
    results = [json.loads(Path(part, "results.json").read_text()) for part in parts]
    assert [one["subset"] for one in results] == ["base", "new"]
    assert list(Path("output/features").iterdir())
    capsys.readouterr()

    # Finished by results.json and its settings: nothing that the runner itself noted is needed.
    for part in parts:
        Path(part, "bench.json").unlink()
    assert main(arguments) == 0
    assert "2 were finished before" in capsys.readouterr().out
    assert main([*arguments, "--set", "OPTIM.LR", "0.5"]) == 1
    assert "OPTIM.LR was 0.002 and is 0.5" in capsys.readouterr().err
