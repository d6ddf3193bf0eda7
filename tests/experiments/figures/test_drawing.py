"""What all figures share: their files, their widths, names that do not collide, caveats, and the command."""

from __future__ import annotations

import csv
import itertools
import struct
from collections.abc import Callable
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from matplotlib.figure import Figure

from cocoamix.experiments.figures import base_to_new
from cocoamix.experiments.figures.charts import draw_lines, draw_rows
from cocoamix.experiments.figures.style import RC, Drawing, Style, look, save
from tests.experiments.figures.conftest import Draw
from tests.experiments.trees import write_pair

METHODS = [f"A method with a long name {number}" for number in range(13)]
FIVE = {"CLIP": (65, 69), "CoOp": (77, 68), "KgCoOp": (78.5, 75), "ProGrad": (79, 73), "Mix": (80, 75)}
EQUAL = {"CLIP": (98, 99), "CoOp": (100, 100), "KgCoOp": (100, 100)}


def _points(style: Style, places: dict[str, tuple[float, float]]) -> Figure:
    rows = pd.DataFrame(places.values(), index=pd.Index(places, name="method"), columns=["base", "new"])
    return base_to_new.draw_points(rows.assign(base_std=0.2, new_std=0.4, published="", start=""), style, "Title")


def _counts(style: Style) -> Figure:
    rows = pd.DataFrame({"parameters": [10**n for n in range(13)], "H": 70.0, "H_std": 0.1}, index=METHODS)
    return base_to_new.draw_counts(rows, style, "H and trained parameters of thirteen methods")


def _lines(style: Style) -> Figure:
    rows = [(name, "", x, 60 + n + x, 0.5, (60 + n, 61 + n)) for n, name in enumerate(METHODS) for x in range(9)]
    lines = pd.DataFrame(rows, columns=["method", "published", "x", "mean", "std", "by_seed"])
    return draw_lines(dict.fromkeys(("all classes so far", "base", "novel"), lines), style, "Title", "session")


def _rows(style: Style) -> Figure:
    rows = [(f"a dataset\n{n} images", m, n + 0.1 * k) for n in range(4) for k, m in enumerate(METHODS)]
    values = pd.DataFrame(rows, columns=["row", "series", "value"])
    return draw_rows(values, style, "Title", "H (%)", lambda own: f"{own.mean():.2f}")


def _crowd(style: Style) -> Figure:
    return _points(Style(3.25), {name: (70 + number / 99, 70) for number, name in enumerate(METHODS)})


@pytest.mark.parametrize("inches", [3.25, 6.75])
@pytest.mark.parametrize("make", [_crowd, _counts, _lines, _rows])
def test_all_words_fit_and_all_methods_look_different(make: Callable[[Style], Figure], inches: float) -> None:
    with matplotlib.rc_context(RC):
        figure = make(Style(inches))
        figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == METHODS
    words = [*legend.get_texts(), *figure.texts]
    for axes in figure.axes:
        words += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        words += axes.get_yticklabels() if make is _rows else []
    for box in (text.get_window_extent() for text in words if text.get_text()):
        assert -1 <= box.x0 <= box.x1 <= figure.bbox.x1 + 1
        assert -1 <= box.y0 <= box.y1 <= figure.bbox.y1 + 1
    for text, other in itertools.combinations([*legend.get_texts(), *figure.texts], 2):
        assert not text.get_window_extent().overlaps(other.get_window_extent())
    assert len({look(place).colour for place in range(13)}) == len({look(place).marker for place in range(13)}) == 13
    assert figure.axes[0].get_window_extent().height > 0.8 * figure.dpi  # the legend has not eaten the panel


@pytest.mark.parametrize("inches", [3.25, 6.75])
@pytest.mark.parametrize("places", [FIVE, EQUAL])
def test_names_of_points_are_free_of_each_other_and_of_points(
    places: dict[str, tuple[float, float]], inches: float
) -> None:
    with matplotlib.rc_context(RC):
        figure = _points(Style(inches), places)
        figure.draw_without_rendering()
    axes = figure.axes[0]
    names = [text for text in axes.texts if text.get_text()]
    assert {text.get_text() for text in names} == set(places)
    marks = axes.transData.transform(list(places.values()))
    for text, other in itertools.combinations(names, 2):
        assert not text.get_window_extent().overlaps(other.get_window_extent())
    for text in names:
        assert not any(text.get_window_extent().contains(x, y) for x, y in marks)


def test_files_are_reproducible_and_fit_for_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RC, "savefig.dpi", 300)
    data = pd.DataFrame({"name": ["=cmd|' /C calc'!A0", "-5"], "value": [1.5, 2.0], "seeds": [(1.0, 2.0), ()]})
    drawing = Drawing("one", "Title", "It shows.", _lines, data)
    save(drawing, tmp_path, Style(5.0))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    save(drawing, tmp_path, Style(5.0))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with (tmp_path / "one.csv").open(newline="") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    assert rows == [("'=cmd|' /C calc'!A0", "1.5", "1.0 2.0"), ("-5", "2.0", "")]  # no formula in a spreadsheet
    assert struct.unpack(">I", before["one.png"][16:20]) == (1500,)
    assert b"/Type3" not in before["one.pdf"]
    assert METHODS[12].encode() in before["one.svg"]  # text stays text
    with pytest.raises(ZeroDivisionError):  # a figure that fails leaves the files of the last one
        save(Drawing("one", "Title", "Other.", lambda style: 1 // 0, data), tmp_path, Style())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("figure", ["tradeoff", "datasets"])
def test_caveats_are_in_the_sentence(figure: str, tmp_path: Path, draw: Draw) -> None:
    write_pair(tmp_path / "runs", 60.0, 70.0, trainer="ZeroshotCLIP")
    write_pair(tmp_path / "runs", 80.0, 60.0, caveats=["random weights"], protocol={"backbone": "RN50"})
    draw(figure, tmp_path / "runs")
    sentence = (tmp_path / f"figures/{figure}.txt").read_text()
    assert "random weights (2 of 4 runs)" in sentence
    assert "cannot be compared: backbone is RN50 in" in sentence


@pytest.mark.parametrize("width", ["wide", "nan", "1", "1e9"])
def test_invalid_widths_are_refused(width: str, refused: Callable[..., str]) -> None:
    assert "--width" in refused("gradient", f"--width={width}")


@pytest.mark.parametrize("figure", ["tradeoff", "sessions", "losses", "assumption", "confusing", "weights"])
def test_missing_runs_and_settings_of_finished_ones_are_refused(
    figure: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "nothing", tmp_path / "empty"):
        assert str(folder) in refused(figure, "--runs", folder)
    for flag in (("--datasets", "warm_cool"), ("--seeds", "1"), ("--set", "OPTIM.LR", "1"), ("--jobs", "2")):
        assert flag[0] in refused(figure, "--runs", "somewhere", *flag)
