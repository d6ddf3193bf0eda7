"""Whether a shell script may skip a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cocoamix.finished import main
from cocoamix.run.arguments import parse_arguments
from cocoamix.run.protocol import plain
from cocoamix.train import setup_cfg

ARGUMENTS = ["--trainer", "CoOp", "--dataset-config-file", "configs/datasets/warm_cool.yaml"]
ARGUMENTS += ["--config-file", "configs/trainers/CoOp/tiny.yaml", "--seed", "1"]
THREE = ["OPTIM.MAX_EPOCH", "3"]


def write(folder: Path, arguments: list[str], **more: Any) -> None:
    config = plain(setup_cfg(parse_arguments(arguments)))
    (folder / "results.json").write_text(json.dumps({"metrics": {"accuracy": 1.0}, "config": config, **more}))


def test_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path)
    assert main([]) == 2
    assert main([folder, *ARGUMENTS]) == 1
    write(tmp_path, ARGUMENTS, finished=False)
    assert main([folder, *ARGUMENTS]) == 1
    write(tmp_path, ARGUMENTS)
    assert main([folder]) == 0  # nothing to compare with
    assert main([folder, *ARGUMENTS, "--output-dir", folder]) == 0
    capsys.readouterr()
    assert main([folder, *ARGUMENTS, *THREE]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {folder} ")
    assert "OPTIM.MAX_EPOCH" in printed
    assert main([folder, *ARGUMENTS, "OPTIM.MAX_EPOC", "3"]) == 2
    write(tmp_path, ARGUMENTS, version=99)
    assert main([folder, *ARGUMENTS]) == 2
    (tmp_path / "results.json").write_text("[]")
    assert main([folder, *ARGUMENTS]) == 1


def test_evaluations_belong_to_their_model(tmp_path: Path) -> None:
    trained, tested = tmp_path / "train_base", tmp_path / "test_new"
    evaluation = [*ARGUMENTS, "--eval-only", "--model-dir", str(trained)]
    for folder in (trained, tested):
        folder.mkdir()
        write(folder, [*ARGUMENTS, *THREE])
    assert main([str(tested), *evaluation]) == 0  # started without the training's options
    write(trained, [*ARGUMENTS, "OPTIM.MAX_EPOCH", "5"])
    assert main([str(tested), *evaluation]) == 2
