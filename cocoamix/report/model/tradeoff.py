"""The trade-off between base and new classes: a point for each method, and lines of equal H."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cocoamix.report.names import is_clip, is_zero_shot

from .rows import Row, not_comparable
from .stats import harmonic
from .tables import Chart, Line, Series, Table, Value

_STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # between lines of equal H
_MOST_LINES = 8
_NARROWEST = 4.0  # points of accuracy; less would blow noise up


def tradeoff_chart(table: Table, rows: Sequence[Row], datasets: Sequence[str], key: str) -> Chart:
    """Return base and new of each line of a table that has both, with arrows from zero-shot CLIP to what is trained.

    datasets: those that the table is over.
    """
    lines = [line for line in table.lines if not any(value.missing for value in _halves(table, line))]
    if len(lines) < 2:  # one point trades nothing
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
    """Return arrows from CLIP; none to a method that several rows of CLIP could be meant for."""
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


# ---------------------------------------------------------------------------------------- lines of equal H


@dataclass(frozen=True)
class Window:
    """The part of the plane that a figure shows."""

    left: float
    right: float
    bottom: float
    top: float


def window(series: Sequence[Series]) -> Window:
    """Return the part of the plane that holds all points with their deviations, and room for their names."""
    left, right = _range([(one.x[0], one.x_spread[0]) for one in series], 0.15, 0.27)  # names stand on the right
    bottom, top = _range([(one.y[0], one.spread[0]) for one in series], 0.15, 0.15)
    return Window(left, right, bottom, top)


def _range(values: Sequence[tuple[float, float]], before: float, after: float) -> tuple[float, float]:
    """Return the ends of an axis; `before` and `after` are the room beside the values, as parts of their range."""
    low, high = min(x - spread for x, spread in values), max(x + spread for x, spread in values)
    length = max(high - low, _NARROWEST)
    return max(low - before * length, 0.0), high + after * length


def levels(shown: Window) -> list[float]:
    """Return the values of H to draw lines for: round ones, and few."""
    low, high = harmonic(shown.left, shown.bottom), harmonic(shown.right, shown.top)
    for step in _STEPS:
        numbers = range(math.floor(low / step) + 1, math.ceil(high / step))
        if len(numbers) <= _MOST_LINES:
            return [number * step for number in numbers]
    return []


def equal_h(level: float, shown: Window, count: int = 121) -> list[tuple[float, float]]:
    """Return points of the line on which H is `level`, from the top left to the bottom right; none outside.

    With r = new / base, base is H (1 + 1/r) / 2 and new is H (1 + r) / 2; steps of log r are even along the line.
    """
    steepest = min(2 * shown.top / level - 1, _inverse(2 * shown.left / level - 1))
    flattest = max(2 * shown.bottom / level - 1, _inverse(2 * shown.right / level - 1))
    if not 0 < flattest < steepest < math.inf:
        return []
    first, last = math.log(steepest), math.log(flattest)
    ratios = [math.exp(first + (last - first) * place / (count - 1)) for place in range(count)]
    return [(level * (1 + 1 / ratio) / 2, level * (1 + ratio) / 2) for ratio in ratios]


def _inverse(value: float) -> float:
    return 1 / value if value > 0 else math.inf
