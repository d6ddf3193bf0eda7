"""A bar on a terminal, lines in a log, and unchanged items."""

from __future__ import annotations

import io
import sys

import pytest

from cocoamix.io import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_bar_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    screen, pipe = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    assert list(progress.progress(range(3), 3, "reading")) == [0, 1, 2]
    assert "reading" in screen.getvalue()
    monkeypatch.setattr(sys, "stderr", pipe)
    assert list(progress.progress(range(3), 3, "reading")) == [0, 1, 2]
    assert pipe.getvalue() == capsys.readouterr().out == ""


def test_log_has_plain_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    list(progress.progress(range(3), 3, "reading"))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["reading: 1/3", "reading: 2/3"]
