"""A row for each method, with a point for the mean of each measure."""

from __future__ import annotations

from .chart import Chart
from .ranges import around, spread_of
from .style import MARKERS, Figure, Palette, add_legend, make_figure, wrap

_APART = 0.27  # distance between the points of a method; methods are 1 apart
_ROOM_FOR_NUMBERS = 0.13  # right of the points, as a fraction of the axis


def draw_points(chart: Chart, palette: Palette) -> Figure:
    """Draw the mean of each measure with its deviation and seeds, on an axis around the values."""
    methods = len(chart.ticks)
    figure, axes = make_figure(1.3 + 0.62 * methods, chart.title)
    low, high = around(value for series in chart.series for value in spread_of(series))
    length = high - low
    for place, series in enumerate(chart.series):
        colour, marker = palette.hue(place), MARKERS[place]
        heights = [x + (place - (len(chart.series) - 1) / 2) * _APART for x in series.x]
        axes.errorbar(series.y, heights, xerr=series.spread or None, fmt="none", ecolor=colour, elinewidth=1.4)
        axes.plot(series.y, heights, marker, color=colour, markersize=6, label=series.label)
        for at, value, spread, dots in zip(heights, series.y, series.spread, series.dots, strict=True):
            axes.plot(dots, [at] * len(dots), ".", color=palette.ink, markersize=3, zorder=3)
            end = max([value + spread, *dots]) + 0.025 * length
            axes.text(end, at, f"{value:.1f}", va="center", fontsize=8.5, color=palette.ink)
    for edge in range(1, methods):
        axes.axhline(edge - 0.5, color=palette.grid, linewidth=0.8)
    axes.set_yticks(range(methods), [wrap(tick) for tick in chart.ticks])
    axes.tick_params(axis="y", labelcolor=palette.ink)
    axes.set_ylim(methods - 0.5, -0.5)
    axes.set_xlim(low, high + _ROOM_FOR_NUMBERS * length)
    axes.xaxis.get_major_locator().set_params(nbins=6, steps=[1, 2, 5, 10])
    axes.set_xticks([tick for tick in axes.get_xticks() if low <= tick <= min(high, 100.0)])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"{chart.y_label}; the axis does not start at 0" if low > 0 else chart.y_label)
    add_legend(figure, axes, len(chart.series), 4)
    return figure
