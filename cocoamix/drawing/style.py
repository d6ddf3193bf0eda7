"""One style for all figures, in a light and a dark palette, and the parts that figures share."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from cocoamix.errors import UserError

try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError as error:
    raise UserError(
        "Figures need matplotlib, which is not installed: pip install matplotlib. Tables, without --html and --plots, "
        "work without it."
    ) from error


@dataclass(frozen=True)
class Palette:
    """The colours of a figure. Colour-blind readers can tell the hues apart, and each contrasts with the background."""

    ink: str
    muted: str
    grid: str
    hues: tuple[str, ...]

    def hue(self, place: int) -> str:
        """Return the colour of a series; the colours repeat."""
        return self.hues[place % len(self.hues)]

    def look(self, place: int) -> tuple[str, str]:
        """Return colour and marker of a series; when the colours repeat, the markers change."""
        return self.hue(place), MARKERS[(place + place // len(self.hues)) % len(MARKERS)]


LIGHT = Palette(
    "#1c2733",
    "#5b6875",
    "#d9dee4",
    ("#2b6cb0", "#c56a12", "#1f8a68", "#8452b8", "#b83a4b", "#7a6420", "#b04a8a", "#4a7d8c"),
)
DARK = Palette(
    "#e6eaef",
    "#a3aebb",
    "#3a4552",
    ("#7db4f5", "#f2a65a", "#63d0a9", "#c6a4f2", "#f58c9a", "#d8c06a", "#f0a0cf", "#8fd0e2"),
)
MARKERS = "osD^vPX*"
_PARTS = re.compile(r"\S+?(?:[_\-/.,:=(]+|(?<=[a-z])(?=[A-Z])|\s+|$)|\s+")  # of a name, where it may be broken
_LONGEST_NAME = 48  # characters of a name in a legend
_LEGEND_LINE = 0.2  # inches
_WIDTH = 4.4  # inches; narrow, so that text stays legible on a phone

_STYLE: dict[Any, Any] = {
    # An SVG file names them all. Verdana, which Windows and macOS have, is as wide as DejaVu Sans.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.8,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "svg.fonttype": "none",  # text stays text: it can be selected, searched and read aloud
    "svg.hashsalt": "cocoamix",  # the same report gives the same file
}


def apply(palette: Palette) -> AbstractContextManager[None]:
    """Return a context in which figures have the common style and the colours of a palette."""
    keys = {
        palette.ink: ("axes.titlecolor", "legend.labelcolor", "text.color"),
        palette.muted: ("axes.labelcolor", "xtick.color", "ytick.color"),
        palette.grid: ("axes.edgecolor", "grid.color"),
    }
    return matplotlib.rc_context(_STYLE | {key: colour for colour, named in keys.items() for key in named})


def make_figure(height: float, title: str) -> tuple[Figure, Any]:
    """Return a figure of the common width, and its axes."""
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title("\n".join(textwrap.wrap(title, 40)), pad=8)
    return figure, axes


def add_legend(figure: Figure, axes: Any, labels: int, longest: int, columns: int = 0) -> int:
    """Put the names of the series below the axes, and return the number of lines.

    Args:
        figure: The figure.
        axes: The axes whose series are named.
        labels: The number of names.
        longest: The length of the longest name.
        columns: The number of columns; 0 for as many as fit into the common width.
    """
    handles, texts = axes.get_legend_handles_labels()
    texts = [shorten_middle(text, _LONGEST_NAME) for text in texts]
    columns = min(labels, columns) or _legend_columns(labels, longest)
    if labels > 1:
        figure.legend(handles, texts, loc="outside lower center", ncols=columns, handlelength=1.4, columnspacing=1.4)
    return math.ceil(labels / columns) if labels > 1 else 0


def legend_height(names: Sequence[str]) -> float:
    """Return the height in inches of a legend below a figure of the common width."""
    if len(names) < 2:
        return 0.0
    return _LEGEND_LINE * math.ceil(len(names) / _legend_columns(len(names), max(map(len, names))))


def _legend_columns(labels: int, longest: int) -> int:
    return max(1, min(labels, int(52 / (min(longest, _LONGEST_NAME) + 6))))


def wrap(label: str, width: int = 16) -> str:
    """Break a long name into at most three short lines, between words or parts of words."""
    lines = [""]
    for part in _PARTS.findall(shorten_middle(label, 3 * width - 4)):
        for piece in textwrap.wrap(part, width, drop_whitespace=False):
            if len(lines[-1] + piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    shown = [line.strip() for line in lines if line.strip()]
    if len(shown) > 3:
        shown[2] = shown[2][: width - 3] + "..."
    return "\n".join(shown[:3])


def shorten_middle(text: str, most: int) -> str:
    """Shorten a long name in the middle, because names of methods often differ at the end."""
    kept = most - 3
    return text if len(text) <= most else f"{text[: kept - kept // 2]}...{text[-(kept // 2) :]}"
