"""Several charts of the same series side by side, with one legend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .bubbles import draw_bubbles_on
from .chart import Chart
from .charts import draw_curves
from .style import Figure, Palette, add_legend, apply

_WIDTH, _HEIGHT = 3.3, 3.1  # inches of a panel


def draw_panels(charts: Sequence[Chart], palette: Palette) -> Figure:
    """Return a figure with a titled panel for each chart."""
    draws: dict[str, Callable[[Any, Chart, Palette], None]] = {"curves": draw_curves, "bubbles": draw_bubbles_on}
    with apply(palette):
        labels = [series.label for series in max(charts, key=lambda one: len(one.series)).series]
        columns = max(1, int(_WIDTH * len(charts) * 13 / (max(map(len, labels)) + 8)))
        lines = -(-len(labels) // columns)
        figure = Figure(figsize=(_WIDTH * len(charts), _HEIGHT + 0.22 * lines), layout="constrained")
        for chart, axes in zip(charts, figure.subplots(1, len(charts), squeeze=False)[0], strict=True):
            draws[chart.kind](axes, chart, palette)
            axes.set_title(chart.title)
        fullest = max(figure.axes, key=lambda one: len(one.get_legend_handles_labels()[1]))
        add_legend(figure, fullest, len(labels), max(map(len, labels)), columns)
    return figure
