"""Draw charts by their kind. On a page their colours follow the reader's light or dark mode."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from . import files
from .bubbles import draw_bubbles
from .chart import Chart
from .points import draw_points
from .ranges import thin
from .style import DARK, LIGHT, Figure, Palette, add_legend, apply, legend_height, make_figure, wrap
from .tradeoff import draw_tradeoff

_TALL = 30  # rows of marks; taller figures also have the numbers of the x axis on top
_MOST_TICKS = 12  # on the x axis of curves, so that their labels do not touch


def draw(chart: Chart, palette: Palette = LIGHT) -> Figure:
    """Return the figure of a chart."""
    draws: dict[str, Callable[[Chart, Palette], Figure]] = {
        "points": draw_points,
        "dots": _dots,
        "curves": _curves,
        "tradeoff": draw_tradeoff,
        "bubbles": draw_bubbles,
    }
    with apply(palette):
        return draws[chart.kind](chart, palette)


def to_inline_svg(chart: Chart, drawn: str = "") -> str:
    """Return a chart as an SVG element for a page. Colours are CSS variables of the page, and ids are unique.

    Args:
        chart: The chart.
        drawn: Its light SVG file, if it has been drawn already.
    """
    svg = drawn or files.to_svg(partial(draw, chart), chart.title)
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
    """Return the CSS variables of the page's colours, with their light and dark values."""
    named = {name: (getattr(LIGHT, name), getattr(DARK, name)) for name in ("ink", "muted", "grid")}
    return named | {f"c{number}": pair for number, pair in enumerate(zip(LIGHT.hues, DARK.hues, strict=True))}


# ---------------------------------------------------------------------------------------- kinds


def _dots(chart: Chart, palette: Palette) -> Figure:
    """Draw a row for each dataset, with a small dot for each seed and a large mark for the mean."""
    methods, datasets = len(chart.series), len(chart.ticks)
    figure, axes = make_figure(1.3 + datasets * (0.2 + 0.08 * methods) + legend_height(_names(chart)), chart.title)
    step = 0.84 / max(1, methods)
    for place, series in enumerate(chart.series):
        colour, marker = palette.look(place)
        heights = [y + (place - (methods - 1) / 2) * step for y in series.y]
        for at, dots in zip(heights, series.dots, strict=True):
            axes.plot(dots, [at] * len(dots), "-", color=colour, linewidth=1, alpha=0.6)
            axes.plot(dots, [at] * len(dots), ".", color=colour, markersize=5)
        axes.plot(series.x, heights, marker, color=colour, markersize=6.5, label=series.label)
    for edge in range(1, datasets):
        axes.axhline(edge - 0.5, color=palette.grid, linewidth=0.8)
    axes.set_yticks(range(datasets), [wrap(tick) for tick in chart.ticks])
    axes.tick_params(axis="y", labelcolor=palette.ink)
    axes.tick_params(axis="x", labeltop=datasets * methods > _TALL)
    axes.set_ylim(datasets - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(chart.x_label)
    add_legend(figure, axes, methods, max(len(series.label) for series in chart.series))
    return figure


def _curves(chart: Chart, palette: Palette) -> Figure:
    """Draw lines over sessions, shots or a setting: bands are deviations, dots seeds, dashed lines the paper's."""
    figure, axes = make_figure(3.0 + legend_height(_names(chart)), chart.title)
    draw_curves(axes, chart, palette)
    add_legend(figure, axes, len(chart.series), max(len(series.label) for series in chart.series))
    return figure


def draw_curves(axes: Any, chart: Chart, palette: Palette) -> None:
    """Draw the lines of a chart on axes."""
    owns = [series.label for series in chart.series if not series.paper]
    for place, series in enumerate(chart.series):
        # The paper's line for a method has the colour of ours.
        same = series.label.removesuffix(" (paper)")
        colour, marker = palette.look(owns.index(same) if series.paper and same in owns else place)
        low = [y - s for y, s in zip(series.y, series.spread, strict=True)]
        high = [y + s for y, s in zip(series.y, series.spread, strict=True)]
        if any(series.spread):
            axes.fill_between(series.x, low, high, color=colour, alpha=0.16, linewidth=0)
        for x, dots in zip(series.x, series.dots, strict=True):
            axes.plot([x] * len(dots), dots, ".", color=colour, markersize=3.5, alpha=0.8)
        dashes, width = ("--", 1.2) if series.paper else ("-", 1.8)
        axes.plot(series.x, series.y, dashes, marker=marker, color=colour, label=series.label, linewidth=width)
    if chart.ticks:
        shown = range(0, len(chart.ticks), 1 + (len(chart.ticks) - 1) // _MOST_TICKS)
        axes.set_xticks(shown, [_shots(chart.ticks[place]) for place in shown])
    else:
        values = sorted({x for series in chart.series for x in series.x})
        axes.set_xticks(thin(values, (values[-1] - values[0]) / _MOST_TICKS))
        axes.xaxis.set_major_formatter("{x:g}")
    if chart.y_range:
        axes.set_ylim(chart.y_range)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)


def _names(chart: Chart) -> list[str]:
    return [series.label for series in chart.series]


def _shots(tick: str) -> str:
    return re.sub(r" shots?$", "", tick)
