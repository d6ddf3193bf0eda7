"""Lines of equal harmonic mean in the plane of base and new accuracy, and the part of the plane to show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .chart import Series

_STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)  # between lines of equal H
_MOST_LINES = 8
_NARROWEST = 4.0  # points of accuracy; a shorter axis would exaggerate noise


@dataclass(frozen=True)
class Window:
    """The part of the plane that a figure shows."""

    left: float
    right: float
    bottom: float
    top: float


def window(series: Sequence[Series]) -> Window:
    """Return the part of the plane that holds all points, their deviations and their names."""
    left, right = _range([(one.x[0], one.x_spread[0]) for one in series], 0.15, 0.27)  # names are on the right
    bottom, top = _range([(one.y[0], one.spread[0]) for one in series], 0.15, 0.15)
    return Window(left, right, bottom, top)


def _range(values: Sequence[tuple[float, float]], before: float, after: float) -> tuple[float, float]:
    """Return the ends of an axis; `before` and `after` are the room next to the values, as fractions of their range."""
    low, high = min(x - spread for x, spread in values), max(x + spread for x, spread in values)
    length = max(high - low, _NARROWEST)
    return max(low - before * length, 0.0), high + after * length


def levels(shown: Window) -> list[float]:
    """Return a few round values of H to draw lines for."""
    low, high = _harmonic(shown.left, shown.bottom), _harmonic(shown.right, shown.top)
    for step in _STEPS:
        numbers = range(math.floor(low / step) + 1, math.ceil(high / step))
        if len(numbers) <= _MOST_LINES:
            return [number * step for number in numbers]
    return []


def equal_h(level: float, shown: Window, count: int = 121) -> list[tuple[float, float]]:
    """Return points of the line on which H is `level`, within the window, from the top left to the bottom right.

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


def _harmonic(base: float, new: float) -> float:
    return 2 * base * new / (base + new) if base + new else 0.0
