"""Figures are rendered coarsely. `draw` runs the command and returns the data and the sentences of its figures."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cocoamix.experiments.figures import main, style

Data = dict[str, list[dict[str, str]]]  # rows by the stem of the figure
Draw = Callable[..., Data]


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(style.RC, "savefig.dpi", 30)


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    out = tmp_path / "figures"

    def drawn(name: str, *runs: Path, more: tuple[str, ...] = ()) -> Data:
        shutil.rmtree(out, ignore_errors=True)
        chosen = ["--runs", *map(str, runs)] if runs else []
        assert main([name, *chosen, "--output", str(out), *more]) == 0
        return {path.stem: list(csv.DictReader(path.open(newline=""))) for path in sorted(out.glob("*.csv"))}

    return drawn


@pytest.fixture
def refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Returns the error message of a command that draws nothing."""

    def message(name: str, *arguments: object) -> str:
        out = tmp_path / "nothing"
        assert main([name, *map(str, arguments), "--output", str(out)]) == 2
        assert not out.exists()
        error = capfd.readouterr().err
        assert error.splitlines()[-1].startswith("error: ")
        return error

    return message
