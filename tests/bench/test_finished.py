"""Whether a shell script may skip a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cocoamix.bench.comparison import settings_of_arguments
from cocoamix.bench.finished import main

ARGUMENTS = ["--trainer", "CoOp", "--dataset-config-file", "configs/datasets/warm_cool.yaml"]
ARGUMENTS += ["--config-file", "configs/trainers/CoOp/tiny.yaml", "--seed", "1"]
THREE = ["OPTIM.MAX_EPOCH", "3"]


def nested(settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        *parts, last = key.split(".")
        node = found
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = value
    return found


def write(folder: Path, arguments: list[str], **more: Any) -> None:
    config = nested(settings_of_arguments(arguments))
    (folder / "results.json").write_text(json.dumps({"metrics": {"accuracy": 1.0}, "config": config, **more}))


def test_settings_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path)
    assert main([folder, *ARGUMENTS]) == 1
    write(tmp_path, ARGUMENTS)
    assert main([folder, *ARGUMENTS]) == 0
    assert main([folder, *ARGUMENTS, "--root", "/elsewhere", "--output-dir", folder]) == 0
    capsys.readouterr()
    assert main([folder, *ARGUMENTS, *THREE]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {folder} holds results of other settings (OPTIM.MAX_EPOCH was ")
    assert " and is 3). Move that folder elsewhere" in printed
    assert main([folder, *ARGUMENTS, "OPTIM.MAX_EPOC", "3"]) == 2
    assert main([folder]) == 0  # nothing to compare with


def test_evaluation_takes_model_settings_from_the_checkpoint(tmp_path: Path) -> None:
    """The test script is started without the training's options."""
    evaluation = [*ARGUMENTS, "--eval-only", "--model-dir", "trained"]
    write(tmp_path, [*evaluation, *THREE])
    assert main([str(tmp_path), *evaluation]) == 0
    assert main([str(tmp_path), *evaluation, "DATASET.SUBSAMPLE_CLASSES", "new"]) == 2


def test_model_retrained_with_other_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained, tested = tmp_path / "train_base", tmp_path / "test_new"
    evaluation = [*ARGUMENTS, "--eval-only", "--model-dir", str(trained)]
    for folder in (trained, tested):
        folder.mkdir()
        write(folder, [*ARGUMENTS, *THREE])
    assert main([str(tested), *evaluation]) == 0
    # Settings that an evaluation chooses itself are not compared.
    write(trained, [*ARGUMENTS, *THREE, "TEST.FINAL_MODEL", "best_val"])
    assert main([str(tested), *evaluation]) == 0
    write(trained, [*ARGUMENTS, "OPTIM.MAX_EPOCH", "5"])
    capsys.readouterr()
    assert main([str(tested), *evaluation]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {tested} holds results of another model than the one in {trained} ")
    assert f"(OPTIM.MAX_EPOCH was 3 and is 5). Move {tested} elsewhere" in printed
    (trained / "results.json").unlink()  # nothing to compare with
    assert main([str(tested), *evaluation]) == 0


def test_training_settings_are_ignored_for_untrained_runs(tmp_path: Path) -> None:
    arguments = ["--trainer", "ZeroshotCLIP", *ARGUMENTS[2:], "--eval-only"]
    write(tmp_path, arguments)
    assert main([str(tmp_path), *arguments, *THREE]) == 0
    assert main([str(tmp_path), *arguments, "TRAINER.ZEROSHOT.ENSEMBLE", "80"]) == 2


def test_unfinished_sessions_resume(tmp_path: Path) -> None:
    write(tmp_path, ARGUMENTS, finished=False)
    assert main([str(tmp_path), *ARGUMENTS]) == 1


def test_exit_status_for_unusable_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text("[]")
    assert main([str(tmp_path), *ARGUMENTS]) == 1
    (tmp_path / "results.json").write_text('{"version": 99, "metrics": {"accuracy": 1.0}}')
    assert main([str(tmp_path), *ARGUMENTS]) == 2
    assert "version is 99" in capsys.readouterr().err
    assert main([]) == 2
