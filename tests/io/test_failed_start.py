"""The log of a failed start is removed, and no other."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cocoamix.errors import UserError
from cocoamix.io.failed_start import open_log, remove_log
from tests.conftest import Runner

HEAD = "** Config **\nload_epoch: 3\nOPTIM:\n  MAX_EPOCH: 3\nLoading trainer: CoOp\n"


def logs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("log.txt*"))


@pytest.mark.parametrize(
    "extra",
    [
        ("--eval-only", "--model-dir", "nowhere"),
        ("MODEL.BACKBONE.WEIGHTS", "nowhere.pt"),
        ("DATASET.NUM_SHOTS", "7"),
    ],
)
def test_a_start_after_a_failed_one_writes_log_txt(run: Runner, extra: tuple[str, ...]) -> None:
    failed = run(*extra)
    assert failed.status == 2
    assert "error: " in failed.output
    assert logs(failed.folder) == []
    done = run()
    assert done.status == 0
    assert logs(done.folder) == ["log.txt"]
    assert "Finish training" in done.log


def test_logs_of_runs_that_trained_stay(run: Runner) -> None:
    done = run()
    before = done.log
    failed = run("--eval-only", "--model-dir", "nowhere")
    assert failed.status == 2
    assert logs(done.folder) == ["log.txt"]  # not that of the failed start
    assert done.log == before
    resumed = run("OPTIM.LR", "0.1")  # refused in training, when it resumes
    assert resumed.status == 2, resumed.output
    assert len(logs(done.folder)) == 2
    assert done.log == before


def fail() -> None:
    raise UserError("It fails.")


def train() -> None:
    fail()


@pytest.mark.parametrize("text", [HEAD, ""])
@pytest.mark.parametrize("real", [False, True])
def test_only_a_log_without_work_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, real: bool
) -> None:
    """Also with a logger that does not flush, as Dassl's."""
    for number, (function, more, mode, stays) in enumerate(
        [
            (fail, "", "w", False),
            (train, "", "w", True),
            (fail, "epoch [1/2] batch [1/2] loss 1.0\n", "w", True),
            (fail, "Finish training\n", "w", True),
            (fail, "Evaluate on the *test* set\n", "w", True),
            (fail, "", "a", True),
        ]
    ):
        path = tmp_path / f"log.txt-{number}"
        with path.open(mode) as file:
            monkeypatch.setattr(sys, "stdout", SimpleNamespace(file=file, write=file.write))
            file.write(text + more)
            if real:
                file.flush()
            with pytest.raises(UserError) as error:
                function()
            remove_log(error.value, before=None)
            assert path.exists() == stays, (more, mode)


def test_a_log_that_was_open_before_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "log.txt").open("w") as file:
        monkeypatch.setattr(sys, "stdout", SimpleNamespace(file=file))
        remove_log(UserError("It fails."), before=open_log())
        assert (tmp_path / "log.txt").exists()
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    remove_log(UserError("It fails."))  # without a logger
