"""The one style of all figures: sizes, colours, markers and legends, and the files that a figure is saved as."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from cocoamix.errors import printable
from cocoamix.io.files import open_atomically
from cocoamix.io.spreadsheets import text_cell

RC: Any = matplotlib.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)
COLUMN, PAGE = 3.25, 6.75  # inches: the widths of a column and of the text of a paper
INK, MUTED, GRID = "#1c2733", "#5b6875", "#d9dee4"
# Neighbours differ in hue and in lightness, so that colour-blind readers can tell them apart.
_HUES = (
    *("#2b6cb0", "#c56a12", "#1f8a68", "#8452b8", "#b83a4b", "#7a6420", "#c2559d", "#4a7d8c"),
    *("#12355b", "#e0a03c", "#6fb36a", "#5a2a82", "#e58073", "#3d3d3d", "#8fa3d9", "#6b8e00"),
)
_MARKERS = "osD^vPX*p<>hd"
_NARROWEST_PANEL = 1.6  # inches; narrower panels are put below each other
_NARROWEST_RANGE = 4.0  # points of accuracy; a shorter axis would exaggerate noise


@dataclass(frozen=True)
class Look:
    """The colour and the marker of a method."""

    colour: str
    marker: str


def look(place: int) -> Look:
    """Return the look of the method at a place. Sixteen have different colours, and no two in 200 the same look."""
    return Look(_HUES[place % len(_HUES)], _MARKERS[place % len(_MARKERS)])


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each method, by their order."""
    return {name: look(place) for place, name in enumerate(dict.fromkeys(names))}


@dataclass(frozen=True)
class Style:
    """The options that all figures share."""

    width: float | None = None  # in inches; None for a column, or the whole page if a figure has several panels
    titles: bool = True  # else a caption replaces them

    def panels(self, count: int, height: float, title: str = "", **options: Any) -> tuple[Figure, list[Any]]:
        """Return a figure and the axes of panels of a height: side by side if they fit in, else in equal rows."""
        width = self.width or (PAGE if count > 1 else COLUMN)
        down = -(-count // max(1, int(width / _NARROWEST_PANEL)))
        across = -(-count // down)
        figure = self.figure(width, height * down, title)
        axes = list(figure.subplots(down, across, squeeze=False, **options).flat)
        for unused in axes[count:]:
            unused.remove()
        return figure, axes[:count]

    def figure(self, width: float, height: float, title: str) -> Figure:
        """Return an empty figure of a size in inches, to which its title is added."""
        text = wrap(printable(title), int(width * 11.5)) if self.titles else ""
        figure = Figure(figsize=(width, height + 0.16 * len(text.splitlines())), layout="constrained")
        if text:
            figure.suptitle(text, x=0.01, ha="left")
        return figure


def wrap(name: str, width: int = 18) -> str:
    """Break a long name into lines of a number of letters."""
    return "\n".join(textwrap.wrap(name, width))


def name_series(figure: Figure, axes: Sequence[Any]) -> None:
    """Add a legend below the panels, with each label once; a single label needs none.

    It has as many columns as fit. The figure grows, so that the panels keep their size.
    """
    named: dict[str, Any] = {}
    for panel in axes:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            named.setdefault(wrap(name, 40), handle)
    if len(named) < 2:
        return
    widest = 0.4 + 0.062 * max(len(line) for name in named for line in name.splitlines())  # inches
    columns = max(1, min(len(named), int(figure.get_figwidth() / widest)))
    legend = figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=columns)
    figure.set_figheight(figure.get_figheight() + legend.get_window_extent().height / figure.dpi)


def percent_range(values: Iterable[float], room: float = 0.06) -> tuple[float, float]:
    """Return the ends of an axis of percentages: close to the values, but not so close that noise looks large."""
    shown = list(values)
    low, high = min(shown), max(shown)
    margin = max(room * (high - low), (_NARROWEST_RANGE - (high - low)) / 2)
    return max(0.0, low - margin), min(100.0, high + margin)


@dataclass(frozen=True)
class Drawing:
    """A figure that is computed and ready to draw."""

    stem: str  # of the names of its files
    title: str
    sentence: str  # what it shows, with the main numbers
    draw: Callable[[Style], Figure]
    data: pd.DataFrame


def save(drawing: Drawing, folder: Path, style: Style) -> list[str]:
    """Write a figure as SVG, PNG and PDF, its data as CSV and its sentence as TXT; return the names of the files.

    Everything is drawn before the first file is written, so that a figure that fails leaves no file.
    """
    files = render(drawing.draw, style, drawing.title, ("svg", "png", "pdf"))
    table = drawing.data.rename(columns=str).map(_cell).to_csv(index=False, lineterminator="\n")
    files |= {"csv": table.encode(), "txt": f"{drawing.sentence}\n".encode()}
    for kind, content in files.items():
        with open_atomically(folder / f"{drawing.stem}.{kind}") as file:
            file.write(content)
    return [f"{drawing.stem}.{kind}" for kind in files]


def render(draw: Callable[[Style], Figure], style: Style, title: str, kinds: Sequence[str]) -> dict[str, bytes]:
    """Draw a figure once and return its files by their kind. The same figure always gives the same bytes."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    contents = {}
    with matplotlib.rc_context(RC):
        figure = draw(style)
        for kind in kinds:
            target = io.BytesIO()
            figure.savefig(target, format=kind, metadata={"Title": printable(title), **undated[kind]})
            contents[kind] = target.getvalue()
    return contents


def _cell(value: Any) -> Any:
    """Return a cell of CSV. Texts are escaped so that no spreadsheet takes them for formulas."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return text_cell(value) if isinstance(value, str) else value
