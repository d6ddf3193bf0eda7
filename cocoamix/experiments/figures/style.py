"""The one style of all figures: sizes, colours, markers and legends, and the files that a figure is saved as."""

from __future__ import annotations

import colorsys
import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import pandas as pd

from cocoamix.errors import UserError, printable
from cocoamix.io.files import write_atomically
from cocoamix.io.spreadsheets import text_cell

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError as error:
    raise UserError("Figures need matplotlib, which is not installed: pip install cocoamix[experiments].") from error

COLUMN, PAGE = 3.25, 6.75  # inches: the widths of a column and of the text of a paper
INK, MUTED, GRID = "#1c2733", "#5b6875", "#d9dee4"
# Neighbours differ in hue and in lightness, so that colour-blind readers can tell them apart.
_HUES = (
    *("#2b6cb0", "#c56a12", "#1f8a68", "#8452b8", "#b83a4b", "#7a6420", "#c2559d", "#4a7d8c"),
    *("#12355b", "#e0a03c", "#6fb36a", "#5a2a82", "#e58073", "#3d3d3d", "#8fa3d9", "#6b8e00"),
)
_MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*", "p", "<", ">", "h", "d", "8", (4, 1, 45), (6, 1, 0))
_NARROWEST_PANEL = 2.0  # inches; narrower panels are put below each other
_NARROWEST_RANGE = 4.0  # points of accuracy; a shorter axis would exaggerate noise
_LONGEST_NAME = 48  # characters of a name in a legend

RC: Any = {
    "font.family": "sans-serif",
    # An SVG file names them all. Verdana, which Windows and macOS have, is as wide as DejaVu Sans.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 8,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "figure.facecolor": "white",
    "figure.titlesize": 9,
    "figure.titleweight": "bold",
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.labelcolor": MUTED,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,  # TrueType, which journals accept and editors can edit
    "ps.fonttype": 42,
    "svg.fonttype": "none",  # text stays text: it can be selected, searched and read aloud
    "svg.hashsalt": "cocoamix",  # the same data give the same file
    "savefig.dpi": 300,
}


@dataclass(frozen=True)
class Look:
    """The colour and the marker of a method."""

    colour: str
    marker: Any


def look(place: int) -> Look:
    """Return the look of the method at a place. No two places have the same colour."""
    turn, rest = divmod(place, len(_HUES))
    if not turn:
        return Look(_HUES[rest], _MARKERS[rest])
    # Beyond the chosen colours, hues are a golden section apart, which never repeats.
    red, green, blue = colorsys.hsv_to_rgb(place * 0.618034 % 1, 0.45 + 0.4 * (turn % 2), 0.75)
    return Look(f"#{int(255 * red):02x}{int(255 * green):02x}{int(255 * blue):02x}", _MARKERS[rest])


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each method, by their order."""
    return {name: look(place) for place, name in enumerate(dict.fromkeys(names))}


# ---------------------------------------------------------------------------------------- layout


@dataclass(frozen=True)
class Style:
    """The options that all figures share.

    Attributes:
        width: The width in inches; None for a column, or the whole page if a figure has several panels.
        titles: Whether the figure has its title, which a caption of a paper replaces.
    """

    width: float | None = None
    titles: bool = True

    def panels(self, count: int, height: float, title: str = "", **options: Any) -> tuple[Figure, list[Any]]:
        """Return a figure and the axes of its panels: side by side if they fit into the width, else in several rows.

        Args:
            count: The number of panels.
            height: The height of a panel in inches.
            title: The title of the figure.
            options: Options of `Figure.subplots`, such as `sharey`.
        """
        width = self.width or (PAGE if count > 1 else COLUMN)
        across = max(1, min(count, int(width / _NARROWEST_PANEL)))
        down = -(-count // across)
        figure = self.figure(width, height * down, title)
        axes = list(figure.subplots(down, across, squeeze=False, **options).flat)
        for unused in axes[count:]:
            unused.remove()
        return figure, axes[:count]

    def figure(self, width: float, height: float, title: str) -> Figure:
        """Return an empty figure of a size in inches, to which its title is added."""
        lines = textwrap.wrap(printable(title), int(width * 11.5)) if self.titles else []
        figure = Figure(figsize=(width, height + 0.16 * len(lines)), layout="constrained")
        if lines:
            figure.suptitle("\n".join(lines), x=0.01, ha="left")
        return figure


def add_legend(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Add a legend below the panels, with as many columns as fit. The figure grows, so the panels keep their size."""
    if not names:
        return
    shown = [shorten_middle(name, _LONGEST_NAME) for name in names]
    for columns in range(len(shown), 0, -1):
        legend = figure.legend(handles, shown, loc="outside lower center", ncols=columns)
        extent = legend.get_window_extent()
        if extent.width <= 0.96 * figure.bbox.width or columns == 1:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + extent.height / figure.dpi)


def name_series(figure: Figure, axes: Sequence[Any]) -> None:
    """Add a legend with each label of the axes once; a single label needs none."""
    named: dict[str, Any] = {}
    for panel in axes:
        for handle, name in zip(*panel.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    if len(named) > 1:
        add_legend(figure, list(named.values()), list(named))


def shorten_middle(text: str, most: int) -> str:
    """Shorten a long name in the middle, because names of methods often differ at the end."""
    kept = most - 3
    return text if len(text) <= most else f"{text[: kept - kept // 2]}...{text[-(kept // 2) :]}"


def wrap(name: str, width: int = 18) -> str:
    """Break a long name into at most three lines."""
    return "\n".join(textwrap.wrap(shorten_middle(name, 3 * width - 4), width, break_on_hyphens=True)[:3])


def percent_range(
    values: Iterable[float], room: float = 0.06, shortest: float = _NARROWEST_RANGE
) -> tuple[float, float]:
    """Return the ends of an axis of percentages: close to the values, but not so close that noise looks large.

    Args:
        values: The values to show.
        room: The margin on both sides, as a fraction of the range.
        shortest: The least length of the axis.
    """
    shown = list(values)
    low, high = min(shown), max(shown)
    margin = max(room * (high - low), (shortest - (high - low)) / 2)
    low, high = low - margin, high + margin
    shift = max(0.0, -low) - max(0.0, high - 100.0)
    return max(0.0, low + shift), min(100.0, high + shift)


# ---------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class Drawing:
    """A figure that is computed and ready to draw.

    Attributes:
        stem: The name of its files, without the extension.
        title: The title, also in the metadata of its files.
        sentence: What the figure shows, with the main numbers.
        draw: Draws it in a style, which decides on width and title.
        data: The data that it shows.
    """

    stem: str
    title: str
    sentence: str
    draw: Callable[[Style], Figure]
    data: pd.DataFrame


def save(drawing: Drawing, folder: Path, style: Style) -> list[str]:
    """Write a figure as SVG, PNG and PDF, its data as CSV and its sentence as TXT; return the names of the files.

    Everything is drawn before the first file is written, so that a figure that fails leaves no file.
    """
    files = render(drawing.draw, style, drawing.title, ("svg", "png", "pdf"))
    files |= {"csv": to_csv(drawing.data).encode(), "txt": f"{drawing.sentence}\n".encode()}
    for kind, content in files.items():
        write_atomically(folder / f"{drawing.stem}.{kind}", partial(_write, content))
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


def to_csv(data: pd.DataFrame) -> str:
    """Return data as CSV. Texts are escaped so that no spreadsheet takes them for formulas."""
    return data.rename(columns=str).map(_cell).to_csv(index=False, lineterminator="\n")


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return text_cell(value) if isinstance(value, str) else value


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)
