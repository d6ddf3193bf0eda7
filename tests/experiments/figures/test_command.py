"""The command `cocoamix figures`, and where the runs of figures come from."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from cocoamix.errors import UserError
from cocoamix.experiments.figures import MODULES, load, main, source
from cocoamix.experiments.figures.source import Choice, Plans
from cocoamix.parser import Parser

PLANS = Plans(Choice("quick", ("CLIP",), ("warm_cool",), (1,)), Choice("base2new", ("CLIP",), ("eurosat",), (1,)))


def test_list_names_every_figure_and_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(MODULES)
    for line, name in zip(lines, MODULES, strict=True):
        assert load(name).TIME in line


def test_list_does_not_import_torch() -> None:
    code = "import sys; from cocoamix.experiments.figures import main; main(['list']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.mark.parametrize("width", ["wide", "nan", "-1", "1", "1e9"])
def test_invalid_widths_are_refused(width: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gradient", f"--width={width}", "--output", str(tmp_path / "out")]) == 2
    assert "--width" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_unknown_figures_and_unwritable_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["gradeint"])
    assert end.value.code == 2
    assert "gradient" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["gradient", "--output", str(tmp_path / "file")]) == 2
    assert "file" in capsys.readouterr().err


@pytest.mark.parametrize("figure", ["tradeoff", "parameters", "datasets", "sessions", "losses", "assumption"])
def test_missing_runs_are_reported(figure: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("nothing", "empty"):
        assert main([figure, "--runs", str(tmp_path / folder), "--output", str(tmp_path / "out")]) == 2
        assert str(tmp_path / folder) in capfd.readouterr().err
        assert not (tmp_path / "out").exists()


def parse(*arguments: str) -> argparse.Namespace:
    parser = Parser()
    source.add_arguments(parser, PLANS)
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


def test_finished_runs_are_found_in_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert source.find_source(parse("--runs", "~/a", "b"), PLANS).folders == (tmp_path / "a", Path("b"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--datasets", "warm_col"), "warm_cool"), (("--seeds", "-1"), "-1"), (("--root", "nowhere"), "nowhere")],
)
def test_unsupported_plan_options_are_refused_before_it_starts(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words):
        source.find_source(parse(*arguments), PLANS)
    assert not list(tmp_path.rglob("results.json"))
