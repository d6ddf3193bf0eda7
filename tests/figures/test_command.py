"""What all figures share: the files, the list, and where their runs come from."""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import pytest

from cocoamix.drawing.style import LIGHT, Figure, Palette
from cocoamix.errors import UserError
from cocoamix.figures import catalogue, sources
from cocoamix.figures.command import main
from cocoamix.figures.drawn import Drawn, save
from cocoamix.figures.sources import Choice, Plans
from cocoamix.parser import Parser

FILES = ["one.csv", "one.txt", "one.svg", "one.png", "one-dark.svg", "one-dark.png"]
PLANS = Plans(Choice("quick", ("CLIP",), ("warm_cool",), (1,)), Choice("base2new", ("CLIP",), ("eurosat",), (1,)))


def drawing(palette: Palette) -> Figure:
    figure = Figure(figsize=(1, 1))
    figure.add_subplot().set_title("light" if palette is LIGHT else "dark")
    return figure


def make(draw: object = drawing, **more: object) -> Drawn:
    given = {"stem": "one", "title": "Title", "sentence": "It shows.", "columns": ("a", "b"), "rows": [(1, 2.5)]}
    return Drawn(**{**given, **more, "draw": draw})  # type: ignore[arg-type]


# ---------------------------------------------------------------------- files


def test_a_figure_is_six_files(tmp_path: Path) -> None:
    assert save(make(), tmp_path / "deep" / "down") == FILES
    folder = tmp_path / "deep" / "down"
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert (folder / "one.csv").read_text() == "a,b\n1,2.5\n"
    assert (folder / "one.txt").read_text() == "It shows.\n"
    for name, word in (("one", "light"), ("one-dark", "dark")):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        svg = (folder / f"{name}.svg").read_text()
        assert f">{word}<" in svg
        assert "<dc:title>Title</dc:title>" in svg
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    save(make(), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before  # the same figure, the same files


def test_a_failed_figure_leaves_all_files_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(make(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    whole = Figure.savefig

    def fail(self: Figure, target: object, **options: object) -> None:
        if options["format"] == "png":
            target.write(b"\x89PNG, and then")  # type: ignore[attr-defined]
            raise OSError(28, "No space left on device")
        whole(self, target, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="No space left"):
        save(make(rows=[(3, 4)]), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(OSError, match="No space left"):
        save(make(stem="two"), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(before)


def test_cells_are_escaped_for_spreadsheets(tmp_path: Path) -> None:
    """A name that a spreadsheet would execute gets an apostrophe; numbers, commas, quotes and newlines stay."""
    cells = ["=cmd|' /C calc'!A0", "@sum", "+1+1", "-x", "-5", "1e-3", 'say "a, b"', "two\nlines", "", -0.25, None]
    save(make(columns=[str(n) for n in range(len(cells))], rows=[cells]), tmp_path)
    with (tmp_path / "one.csv").open(newline="") as file:
        _, row = csv.reader(file)
    assert row[:7] == ["'=cmd|' /C calc'!A0", "'@sum", "'+1+1", "'-x", "-5", "1e-3", 'say "a, b"']
    assert "\n" not in row[7]
    assert row[8:] == ["", "-0.25", ""]


# ---------------------------------------------------------------------- the command


def test_list_names_every_figure_and_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(catalogue.MODULES)
    for line, name in zip(lines, catalogue.MODULES, strict=True):
        module = catalogue.load(name)
        assert module.ABOUT.endswith(".")
        assert line.endswith(f"{module.ABOUT} Takes {module.TIME}.")


def test_unknown_figures_and_unwritable_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["gradeint"])
    assert end.value.code == 2
    assert "Did you mean gradient?" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["gradient", "--output", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err


# ---------------------------------------------------------------------- where runs come from


def parse(*arguments: str) -> argparse.Namespace:
    parser = Parser()
    sources.add_arguments(parser, PLANS)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    "flag",
    [
        ("--root", "data"),
        ("--datasets", "warm_cool"),
        ("--seeds", "1"),
        ("--seeds", "0"),
        ("--run-output", "here"),
        ("--set", "OPTIM.LR", "1"),
        ("--jobs", "2"),
    ],
)
def test_finished_runs_accept_no_settings(flag: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=f"^{flag[0]} is for runs of a plan, not for --runs.$"):
        sources.find_source(parse("--runs", "somewhere", *flag), PLANS)


def test_finished_runs_are_found_in_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = sources.find_source(parse("--runs", "~/a", "b"), PLANS)
    assert found.folders == (tmp_path / "a", Path("b"))
    assert found.runs == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--datasets", "warm_col"), "warm_cool"),
        (("--seeds", "-1"), "-1"),
        (("--root", "nowhere"), "nowhere"),
        (("--set", "OPTIM.NOTHING", "1"), "OPTIM.NOTHING"),
        (("--jobs", "0"), "0"),
    ],
)
def test_unsupported_plan_options_are_refused_before_it_starts(
    arguments: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words):
        sources.find_source(parse(*arguments), PLANS)
    assert not list(tmp_path.rglob("results.json"))


def test_failed_runs_draw_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cocoamix.bench import benchmark
    from cocoamix.bench.engines.process import Outcome

    def none_finishes(plan: object, how: object, checked: benchmark.CheckedPlan) -> benchmark.Summary:
        outcomes = [Outcome(run, "failed", "of no reason") for run in checked.due]
        return benchmark.Summary(list(checked.due), outcomes=outcomes)

    monkeypatch.setattr(benchmark, "run_plan", none_finishes)
    with pytest.raises(UserError, match="2 of the 2 runs of the plan quick are missing, as listed above"):
        sources.find_source(parse("--run-output", str(tmp_path)), PLANS)
    printed = capsys.readouterr()
    assert "2 runs are needed first: about " in printed.out
    assert printed.err.count(" (failed): of no reason\n") == 2
