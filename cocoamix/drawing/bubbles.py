"""Bubble charts: a point for each method, whose area grows with its number of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .chart import Chart, Series
from .ranges import thin
from .style import Figure, Palette, add_legend, legend_height, make_figure

_SMALLEST, _LARGEST = 75.0, 420.0  # areas in square points
_DECADE = math.log(10)  # if the sizes span less than this, not the whole range of areas is used
_LABEL = 0.25  # width of a label, as a fraction of the range of x
_UNTRAINED = 40.0  # area of a method without trained parameters


def draw_bubbles(chart: Chart, palette: Palette) -> Figure:
    """Draw a chart as a separate figure with a legend."""
    figure, axes = make_figure(3.0 + legend_height([series.label for series in chart.series]), chart.title)
    draw_bubbles_on(axes, chart, palette)
    add_legend(figure, axes, len(chart.series), max(len(series.label) for series in chart.series))
    return figure


def draw_bubbles_on(axes: Any, chart: Chart, palette: Palette) -> None:
    """Draw the bubbles on axes. A method without a size is a line if x shows the size, else a small point."""
    areas = _areas(chart.series)
    for place, (series, area) in enumerate(zip(chart.series, areas, strict=True)):
        colour, marker = palette.look(place)
        if area is None and chart.x_log:
            axes.axhline(series.y[0], color=colour, linestyle="--", linewidth=1.3, label=series.label)
            continue
        bars = {"xerr": series.x_spread or None, "yerr": series.spread or None, "elinewidth": 1.0, "alpha": 0.8}
        axes.errorbar(series.x, series.y, fmt="none", ecolor=colour, zorder=3, **bars)
        shown = area if area is not None else _UNTRAINED
        above = 4 + 1 / shown  # smaller points are above larger ones, which would hide them
        axes.scatter(series.x, series.y, s=shown, marker=marker, color=colour, alpha=0.7, linewidths=0, zorder=above)
        axes.plot([], [], marker, color=colour, markersize=6.5, label=series.label)
    if chart.x_log:
        axes.set_xscale("log")
        _label_counts(axes, [series.x[0] for series in chart.series])
    axes.margins(0.14)
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)


def _label_counts(axes: Any, counts: Sequence[float]) -> None:
    """Label as many of the counts as fit without touching."""
    logs = sorted({math.log(count) for count in counts if count > 0})
    gap = (logs[-1] - logs[0]) * _LABEL if logs else 0.0
    axes.set_xticks([math.exp(one) for one in thin(logs, gap)])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.minorticks_off()


def _areas(series: Sequence[Series]) -> list[float | None]:
    """Return the area of each point, linear in the logarithm of its size; None without a size."""
    sizes = [one.size[0] if one.size else 0.0 for one in series]
    logs = [math.log(size) for size in sizes if size > 0]
    low, length = min(logs, default=0.0), max(max(logs, default=0.0) - min(logs, default=0.0), _DECADE)
    step = (_LARGEST - _SMALLEST) / length
    return [_SMALLEST + step * (math.log(size) - low) if size > 0 else None for size in sizes]
