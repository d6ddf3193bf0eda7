"""The style and the files of figures."""

from __future__ import annotations

import csv
import struct
from pathlib import Path

import matplotlib
import pandas as pd
import pytest
from matplotlib.figure import Figure

from cocoamix.experiments.figures.style import RC, Drawing, Style, look, name_series, save

METHODS = [f"A method with a long name {number}" for number in range(13)]


def draw(style: Style) -> Figure:
    figure, (axes,) = style.panels(1, 2.0, "The title of a figure")
    for place, name in enumerate(METHODS):
        axes.plot([0, 1], [place, place], marker=look(place).marker, color=look(place).colour, label=name)
    name_series(figure, [axes])
    return figure


def drawing(**changes: object) -> Drawing:
    data = pd.DataFrame({"name": ["=cmd|' /C calc'!A0", "-5"], "value": [1.5, 2.0], "seeds": [(1.0, 2.0), ()]})
    fields = {"stem": "one", "title": "Title", "sentence": "It shows.", "draw": draw, "data": data, **changes}
    return Drawing(**fields)  # type: ignore[arg-type]


def test_a_figure_is_five_files_which_are_reproducible(tmp_path: Path) -> None:
    names = save(drawing(), tmp_path / "deep" / "down", Style())
    folder = tmp_path / "deep" / "down"
    assert sorted(names) == sorted(path.name for path in folder.iterdir())
    assert {name.partition(".")[2] for name in names} == {"svg", "png", "pdf", "csv", "txt"}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    save(drawing(), folder, Style())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert (folder / "one.txt").read_text() == "It shows.\n"
    with (folder / "one.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["'=cmd|' /C calc'!A0", "-5"]  # no formula in a spreadsheet
    assert [row["seeds"] for row in rows] == ["1.0 2.0", ""]
    assert METHODS[12] in (folder / "one.svg").read_text()  # text stays text


def test_a_failed_figure_leaves_all_files_unchanged(tmp_path: Path) -> None:
    save(drawing(), tmp_path, Style())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fail(style: Style) -> Figure:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        save(drawing(draw=fail, sentence="Other."), tmp_path, Style())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("inches", [3.25, 6.75, 5.0])
def test_print_has_the_width_resolution_and_fonts_of_a_paper(inches: float, tmp_path: Path) -> None:
    save(drawing(), tmp_path, Style(inches))
    (width,) = struct.unpack(">I", (tmp_path / "one.png").read_bytes()[16:20])
    assert width == inches * 300
    pdf = (tmp_path / "one.pdf").read_bytes()
    assert b"/Type3" not in pdf
    assert b"/Type42" in pdf or b"/TrueType" in pdf or b"/CIDFontType2" in pdf


@pytest.mark.parametrize("inches", [2.0, 3.25, 6.75])
def test_legend_and_title_fit_into_the_figure(inches: float) -> None:
    with matplotlib.rc_context(RC):
        figure = draw(Style(inches))
        figure.draw_without_rendering()
    (legend,) = figure.legends
    texts = [*legend.get_texts(), *figure.texts]
    assert [text.get_text() for text in legend.get_texts()] == METHODS
    assert len({(text.get_window_extent().x0, text.get_window_extent().y0) for text in texts}) == len(texts)
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y0 >= 0
    assert figure.axes[0].get_window_extent().height > 1.3 * figure.dpi  # the legend has not eaten the panel


def test_colours_and_markers_of_13_methods_differ() -> None:
    assert len({look(place).colour for place in range(13)}) == len({look(place).marker for place in range(13)}) == 13
