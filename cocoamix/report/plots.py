"""Figures, by matplotlib, all in one style. On the page their colours follow the reader's light or dark mode."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from cocoamix.errors import UserError
from cocoamix.files import write_atomically, write_text

from .build import Report
from .tables import Chart

try:
    import matplotlib
    import matplotlib.ticker
    from matplotlib.figure import Figure
except ImportError as error:
    raise UserError(
        "The figures need matplotlib, which is not installed. Install it (pip install matplotlib), or leave out "
        "--html and --plots: the tables need nothing."
    ) from error

# (light, dark): hues that colour-blind readers tell apart, each dark enough or bright enough for its background.
INK, MUTED, GRID = ("#1c2733", "#e6eaef"), ("#5b6875", "#a3aebb"), ("#d9dee4", "#3a4552")
COLOURS = (
    ("#2b6cb0", "#7db4f5"),
    ("#c56a12", "#f2a65a"),
    ("#1f8a68", "#63d0a9"),
    ("#8452b8", "#c6a4f2"),
    ("#b83a4b", "#f58c9a"),
    ("#7a6420", "#d8c06a"),
    ("#b04a8a", "#f0a0cf"),
    ("#4a7d8c", "#8fd0e2"),
)
MARKERS = "osD^vPX*"
_WIDTH = 4.4  # inches; as narrow as a phone, so that letters stay legible on one

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": GRID[0],
    "axes.labelcolor": MUTED[0],
    "axes.titlecolor": INK[0],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID[0],
    "grid.linewidth": 0.8,
    "xtick.color": MUTED[0],
    "ytick.color": MUTED[0],
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.labelcolor": INK[0],
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "text.color": INK[0],
    "text.parse_math": False,  # a dollar sign in a name is a dollar sign
    "svg.fonttype": "none",  # letters stay letters: they can be selected, searched and read aloud
    "svg.hashsalt": "cocoamix",  # the same report gives the same file
}


def draw(chart: Chart) -> Figure:
    """Return the figure of a chart."""
    draws: dict[str, Callable[[Chart], Figure]] = {"bars": _bars, "dots": _dots, "curves": _curves}
    with matplotlib.rc_context(STYLE):
        return draws[chart.kind](chart)


def to_svg(chart: Chart) -> str:
    """Return a chart as SVG with the light colours."""
    target = io.StringIO()
    with matplotlib.rc_context(STYLE):
        draw(chart).savefig(target, format="svg", transparent=True, metadata={"Date": None, "Title": chart.title})
    return target.getvalue()


def to_inline_svg(chart: Chart) -> str:
    """Return a chart as an SVG element for a page: colours are variables of the page, identifiers are unique."""
    svg = to_svg(chart)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->\n?", "", svg, flags=re.DOTALL)
    prefix = chart.key + "-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}', svg)
    svg = svg.replace("url(#", f"url(#{prefix}")
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    for name, (light, _) in variables().items():
        svg = svg.replace(light, f"var(--{name})")
    return svg.strip()


def variables() -> dict[str, tuple[str, str]]:
    """Return the names of the page's colours with their light and dark values."""
    named = {"ink": INK, "muted": MUTED, "grid": GRID}
    return named | {f"c{number}": colour for number, colour in enumerate(COLOURS)}


def write(report: Report, folder: Path) -> None:
    """Write every figure of a report as SVG and PDF."""
    for section in report.sections:
        for chart in section.charts:
            write_text(folder / f"{chart.key}.svg", to_svg(chart))
            write_atomically(folder / f"{chart.key}.pdf", partial(_save_pdf, chart))


def _save_pdf(chart: Chart, file: IO[bytes]) -> None:
    with matplotlib.rc_context(STYLE):
        draw(chart).savefig(file, format="pdf", metadata={"CreationDate": None, "Title": chart.title})


# ---------------------------------------------------------------------------------------- kinds


def _figure(height: float, title: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title("\n".join(textwrap.wrap(title, 40)), pad=8)
    return figure, axes


def _legend(figure: Figure, axes: Any, labels: int, longest: int) -> None:
    handles, texts = axes.get_legend_handles_labels()
    texts = [textwrap.shorten(text, 48, placeholder="...") for text in texts]
    if labels > 1:
        columns = max(1, min(labels, int(52 / (longest + 6))))
        figure.legend(handles, texts, loc="outside lower center", ncols=columns, handlelength=1.4, columnspacing=1.4)


def _bars(chart: Chart) -> Figure:
    """Methods below each other, three bars each. Bars start at zero: their length is the accuracy."""
    methods = len(chart.ticks)
    figure, axes = _figure(1.2 + 0.66 * methods, chart.title)
    thick = 0.26
    for place, series in enumerate(chart.series):
        colour = COLOURS[place % len(COLOURS)][0]
        heights = [x + (place - 1) * thick for x in series.x]
        axes.barh(heights, series.y, height=thick * 0.86, color=colour, label=series.label)
        for at, value, dots in zip(heights, series.y, series.dots, strict=True):
            axes.plot(dots, [at] * len(dots), ".", color=INK[0], markersize=3.5, zorder=3)
            end = max([value, *dots])
            axes.text(end + 1.5, at, f"{value:.1f}", va="center", fontsize=8.5, color=INK[0])
    axes.set_yticks(range(methods), [_wrap(tick) for tick in chart.ticks])
    axes.tick_params(axis="y", labelcolor=INK[0])
    axes.set_ylim(methods - 0.45, -0.55)
    axes.set_xlim(0, 114)
    axes.set_xticks(range(0, 101, 20))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(chart.y_label)
    _legend(figure, axes, len(chart.series), 4)
    return figure


def _dots(chart: Chart) -> Figure:
    """Datasets below each other; a small dot for each seed, a large mark for the mean."""
    methods, datasets = len(chart.series), len(chart.ticks)
    figure, axes = _figure(1.3 + datasets * (0.16 + 0.1 * methods) + 0.2 * ((methods + 1) // 2), chart.title)
    step = 0.84 / max(1, methods)
    for place, series in enumerate(chart.series):
        colour, marker = _look(place)
        heights = [y + (place - (methods - 1) / 2) * step for y in series.y]
        for at, dots in zip(heights, series.dots, strict=True):
            axes.plot(dots, [at] * len(dots), "-", color=colour, linewidth=1, alpha=0.6)
            axes.plot(dots, [at] * len(dots), ".", color=colour, markersize=5)
        axes.plot(series.x, heights, marker, color=colour, markersize=6.5, label=series.label)
    for edge in range(1, datasets):
        axes.axhline(edge - 0.5, color=GRID[0], linewidth=0.8)
    axes.set_yticks(range(datasets), chart.ticks)
    axes.tick_params(axis="y", labelcolor=INK[0])
    axes.set_ylim(datasets - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(chart.x_label)
    _legend(figure, axes, methods, max(len(series.label) for series in chart.series))
    return figure


def _curves(chart: Chart) -> Figure:
    """Lines over sessions, shots or a setting; the band is the deviation, dots are seeds, dashed is the paper."""
    owns = [series.label for series in chart.series if not series.paper]
    figure, axes = _figure(3.2 + 0.2 * ((len(chart.series) + 1) // 2), chart.title)
    for place, series in enumerate(chart.series):
        # The paper's line of a method has the colour of ours.
        same = series.label.removesuffix(" (paper)")
        colour, marker = _look(owns.index(same) if series.paper and same in owns else place)
        low = [y - s for y, s in zip(series.y, series.spread, strict=True)]
        high = [y + s for y, s in zip(series.y, series.spread, strict=True)]
        if any(series.spread):
            axes.fill_between(series.x, low, high, color=colour, alpha=0.16, linewidth=0)
        for x, dots in zip(series.x, series.dots, strict=True):
            axes.plot([x] * len(dots), dots, ".", color=colour, markersize=3.5, alpha=0.8)
        dashes, width = ("--", 1.2) if series.paper else ("-", 1.8)
        axes.plot(series.x, series.y, dashes, marker=marker, color=colour, label=series.label, linewidth=width)
    if chart.ticks:
        axes.set_xticks(range(len(chart.ticks)), [_shots(tick) for tick in chart.ticks])
    else:
        axes.set_xticks(sorted({x for series in chart.series for x in series.x}))
        axes.xaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    _legend(figure, axes, len(chart.series), max(len(series.label) for series in chart.series))
    return figure


def _look(place: int) -> tuple[str, str]:
    """Return colour and marker; where colours come round again, they meet another marker."""
    return COLOURS[place % len(COLOURS)][0], MARKERS[(place + place // len(COLOURS)) % len(MARKERS)]


def _shots(tick: str) -> str:
    return re.sub(r" shots?$", "", tick)


def _wrap(label: str) -> str:
    """Break a long name into short lines; what does not fit is in the table."""
    lines = textwrap.wrap(label, 16)
    return "\n".join(lines[:3]) + ("..." if len(lines) > 3 else "")
