"""The command `cocoamix figures`, and where the runs of figures come from."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from cocoamix.errors import UserError
from cocoamix.experiments.figures import main, source
from cocoamix.experiments.figures.catalogue import FIGURES, declare
from cocoamix.experiments.figures.source import Choice, Plans
from cocoamix.parser import Parser

PLANS = Plans(Choice("quick", ("CLIP",), ("warm_cool",), (1,)), Choice("base2new", ("CLIP",), ("eurosat",), (1,)))


@pytest.mark.parametrize("width", ["wide", "nan", "-1", "1", "1e9"])
def test_invalid_widths_are_refused(width: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gradient", f"--width={width}", "--output", str(tmp_path / "out")]) == 2
    assert "--width" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("figure", ["tradeoff", "parameters", "datasets", "sessions", "losses", "assumption"])
def test_missing_runs_are_reported(figure: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("nothing", "empty"):
        assert main([figure, "--runs", str(tmp_path / folder), "--output", str(tmp_path / "out")]) == 2
        assert str(tmp_path / folder) in capfd.readouterr().err
        assert not (tmp_path / "out").exists()


def parse(*arguments: str) -> argparse.Namespace:
    parser = Parser()
    declare(parser, FIGURES["tradeoff"])
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    "flag",
    [
        ("--root", "data"),
        ("--datasets", "warm_cool"),
        ("--seeds", "0"),
        ("--run-output", "here"),
        ("--set", "OPTIM.LR", "1"),
        ("--jobs", "2"),
    ],
)
def test_finished_runs_accept_no_settings(flag: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=flag[0]):
        source.find_source(parse("--runs", "somewhere", *flag), PLANS)
