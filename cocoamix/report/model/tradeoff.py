"""The trade-off between base and new classes: a point for each method, and lines of equal H."""

from __future__ import annotations

from collections.abc import Sequence

from cocoamix.drawing.chart import Chart, Series
from cocoamix.report.names import is_clip, is_zero_shot

from .rows import Row, not_comparable
from .tables import Line, Table, Value


def tradeoff_chart(table: Table, rows: Sequence[Row], datasets: Sequence[str], key: str) -> Chart:
    """Return a chart of base and new for each line that has both, with arrows from zero-shot CLIP to trained methods.

    Args:
        table: A table with base and new.
        rows: The rows of its lines.
        datasets: The datasets that the table is over.
        key: The key of the chart.
    """
    lines = [line for line in table.lines if not any(value.missing for value in _halves(table, line))]
    if len(lines) < 2:  # a single point shows no trade-off
        lines = []
    series = tuple(_point(table, line) for line in lines)
    words = "; ".join(f"{one.label}: base {one.x[0]:.1f}, new {one.y[0]:.1f}" for one in series)
    arrows = (*_own_arrows(lines, rows, datasets), *_paper_arrows(lines))
    return Chart(
        key,
        "tradeoff",
        f"{table.title}: base and new",
        words,
        series,
        x_label="accuracy on base classes (%)",
        y_label="accuracy on new classes (%)",
        arrows=arrows,
    )


def _halves(table: Table, line: Line) -> list[Value]:
    places = [column.key for column in table.columns]
    return [line.values[places.index(key)] for key in ("base", "new")]


def _point(table: Table, line: Line) -> Series:
    base, new = _halves(table, line)
    return Series(
        line.label,
        (base.mean or 0.0,),
        (new.mean or 0.0,),
        (new.std or 0.0,),
        paper=line.kind == "paper",
        x_spread=(base.std or 0.0,),
    )


# ---------------------------------------------------------------------------------------- arrows


def _own_arrows(lines: Sequence[Line], rows: Sequence[Row], datasets: Sequence[str]) -> list[tuple[int, int]]:
    """Return arrows from CLIP to each trained method that can be compared with exactly one row of CLIP."""
    places = {line.label: place for place, line in enumerate(lines) if line.kind == "own"}
    shown = [row for row in rows if row.label in places]
    clips = [row for row in shown if is_clip(row.trainer)]
    arrows = []
    for row in shown:
        origins = [clip for clip in clips if _comparable(clip, row, datasets)]
        if len(origins) == 1 and not is_zero_shot(row.trainer):
            arrows.append((places[origins[0].label], places[row.label]))
    return arrows


def _comparable(one: Row, two: Row, datasets: Sequence[str]) -> bool:
    for cell in ((dataset, subset) for dataset in datasets for subset in ("base", "new")):
        first, second = (next(iter(row.by_seed(*cell).values()), None) for row in (one, two))
        if first and second and not_comparable(first, second):
            return False
    return True


def _paper_arrows(lines: Sequence[Line]) -> list[tuple[int, int]]:
    """Return arrows from the paper's CLIP to its other methods."""
    places = {line.label: place for place, line in enumerate(lines) if line.kind == "paper"}
    start = places.pop("CLIP (paper)", None)
    return [] if start is None else [(start, place) for place in places.values()]
