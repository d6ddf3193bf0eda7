"""Figures that show charts of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cocoamix.drawing.chart import Chart
from cocoamix.errors import UserError

from .drawn import Drawn

if TYPE_CHECKING:
    from cocoamix.drawing.style import Figure, Palette
    from cocoamix.report.build import Report

COLUMNS = ("panel", "method", "from_paper", "x", "y", "x_deviation", "y_deviation", "y_by_seed")


def to_drawn(stem: str, charts: Sequence[Chart], title: str, sentence: str) -> Drawn:
    """Return a figure of one chart, or of several side by side."""
    return Drawn(stem, title, sentence, partial(_draw, charts), COLUMNS, _rows(charts))


def charts_of(report: Report, kind: str, lacking: str) -> list[Chart]:
    """Return the charts of a kind that a report has.

    Args:
        report: The report.
        kind: The kind of chart.
        lacking: The error message if there is no such chart.
    """
    found = [chart for section in report.sections for chart in section.charts if chart.kind == kind]
    if not found:
        raise UserError(lacking)
    return found


def stems(stem: str) -> Iterator[str]:
    """Yield names for the files of several figures: stem, stem-2, and so on."""
    yield stem
    number = 2
    while True:
        yield f"{stem}-{number}"
        number += 1


def _draw(charts: Sequence[Chart], palette: Palette) -> Figure:
    from cocoamix.drawing.charts import draw
    from cocoamix.drawing.panels import draw_panels

    return draw(charts[0], palette) if len(charts) == 1 else draw_panels(charts, palette)


def _rows(charts: Sequence[Chart]) -> Iterator[tuple[Any, ...]]:
    for chart in charts:
        for series in chart.series:
            for place, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
                seeds = series.dots[place] if place < len(series.dots) else ()
                yield (
                    chart.title,
                    series.label,
                    int(series.paper),
                    x,
                    y,
                    series.x_spread[place] if series.x_spread else "",
                    series.spread[place] if series.spread else "",
                    " ".join(map(str, seeds)),
                )
