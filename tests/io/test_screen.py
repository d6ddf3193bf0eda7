"""Brief console output next to a full log, on a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from cocoamix.io import screen
from cocoamix.io.log import Logger
from cocoamix.io.progress import EpochBar

from .test_progress import Terminal

LINES = ["a note", "epoch [1/2] batch [1/1] loss 0.5 (0.5)", "=> result", "* accuracy: 90.00%"]


def show(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, console: io.StringIO, wanted: bool = True) -> tuple[str, str]:
    """Print lines and a detail under `brief`, with a bar; return what the console and the log received."""
    monkeypatch.setattr(sys, "stdout", console)
    monkeypatch.setattr(sys, "stderr", console)
    monkeypatch.setattr(sys, "stdout", Logger(str(tmp_path / "log.txt")))
    with screen.brief(wanted):
        bar = EpochBar(0, 2)
        bar.begin_epoch(1, 2, "prompt")
        with screen.log_only():
            print("** Config **")
        screen.detail("a detail")
        for line in LINES:
            print(line)
        bar.step(1, "loss 0.500")
        bar.end_epoch(1, 2)
        print("no newline", end="")
    print(" after")
    sys.stdout.close()
    return console.getvalue(), (tmp_path / "log.txt").read_text()


FULL = "\n".join(["** Config **", "a detail", *LINES, "no newline after\n"])


def test_a_pipe_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    console, log = show(monkeypatch, tmp_path, io.StringIO())
    assert console == "\n".join([*LINES, "no newline after\n"])
    assert log == FULL


def test_a_terminal_gets_an_epoch_bar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    console, log = show(monkeypatch, tmp_path, Terminal())
    assert log == FULL
    shown = [line.rpartition("\r")[2] for line in console.split("\n")]  # what remains of a line
    assert [line for line in shown if line] == ["a note", "=> result", "* accuracy: 90.00%", "no newline after"]
    assert "epoch 1/2 (prompt)" in console
    assert "50%" in console
    assert "loss 0.500" in console


def test_a_terminal_without_a_bar_has_the_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A trainer of another code base prints its epochs, and has no bar."""
    console = Terminal()
    monkeypatch.setattr(sys, "stderr", console)
    monkeypatch.setattr(sys, "stdout", console)
    monkeypatch.setattr(sys, "stdout", Logger(str(tmp_path / "log.txt")))
    with screen.brief():
        print("epoch [1/2] before")
        bar = EpochBar(0, 2)
        print("epoch [1/2] next to a bar")
        bar.close()
        bar.close()  # a second call has no effect
        print("epoch [2/2] after")
    shown = [line.rpartition("\r")[2] for line in console.getvalue().split("\n")]
    assert [line for line in shown if line] == ["epoch [1/2] before", "epoch [2/2] after"]
    assert "next to a bar" in (tmp_path / "log.txt").read_text()


def test_verbose_shows_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    console, log = show(monkeypatch, tmp_path, Terminal(), wanted=False)
    assert console == log == FULL


def test_without_a_logger_everything_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with screen.brief():
        screen.detail("a detail")
    assert capsys.readouterr().out == "a detail\n"


def test_the_bar_is_cleared_after_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    console = Terminal()
    monkeypatch.setattr(sys, "stderr", console)
    monkeypatch.setattr(sys, "stdout", console)
    monkeypatch.setattr(sys, "stdout", Logger(str(tmp_path / "log.txt")))
    with contextlib.suppress(KeyError), screen.brief():
        EpochBar(0, 2).begin_epoch(1, 2, "prompt")
        raise KeyError
    print("error: it stopped")
    assert console.getvalue().rpartition("\r")[2] == "error: it stopped\n"
    assert not screen.shows_bars()


def test_a_console_may_be_a_logger_of_real_dassl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its second logger in a process writes to the first, which has no `isatty`."""

    class RealLogger:
        def __init__(self, console: Any, file: Any) -> None:
            self.console, self.file = console, file

        def write(self, text: str) -> None:
            self.console.write(text)

        def flush(self) -> None:
            self.console.flush()

    with (tmp_path / "log.txt").open("w") as file:
        monkeypatch.setattr(sys, "stdout", RealLogger(RealLogger(sys.stdout, file), file))
        with screen.brief():
            assert not screen.shows_bars()
