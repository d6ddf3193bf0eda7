"""Choose the range of an axis: around the values, so that differences show, and equal among panels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .chart import Chart, Series

Range = tuple[float, float]

NARROWEST = 4.0  # points of accuracy; a shorter axis would exaggerate noise
_ROOM = 0.06  # margin on both sides, as a fraction of the range
_MOST = 1.5  # panels share the ends of their axes if the longest grows by at most this factor


def around(values: Iterable[float]) -> Range:
    """Return the ends of an axis for some percentages, with room on both sides."""
    found = list(values)
    low, high = min(found), max(found)
    return stretch((low - _ROOM * (high - low), high + _ROOM * (high - low)), NARROWEST)


def stretch(ends: Range, length: float) -> Range:
    """Stretch a range about its centre to at least some length, and move it into 0 to 100."""
    missing = max(0.0, length - (ends[1] - ends[0])) / 2
    low, high = ends[0] - missing, ends[1] + missing
    shift = max(0.0, -low) - max(0.0, high - 100.0)
    return max(0.0, low + shift), min(100.0, high + shift)


def align(charts: Sequence[Chart]) -> list[Chart]:
    """Give charts of curves that readers compare the same y axis.

    If their levels are so far apart that one axis would hide the differences within each, the axes only have the same
    length: a point of accuracy has the same height in all of them.
    """
    filled = [chart for chart in charts if any(one.y for one in chart.series)]
    if not filled:
        return list(charts)
    own = {chart.key: around(value for one in chart.series for value in spread_of(one)) for chart in filled}
    longest = max(high - low for low, high in own.values())
    whole = min(low for low, _ in own.values()), max(high for _, high in own.values())
    shared = whole[1] - whole[0] <= _MOST * longest
    ends = {key: whole if shared else stretch(one, longest) for key, one in own.items()}
    return [replace(chart, y_range=ends.get(chart.key)) for chart in charts]


def spread_of(series: Series) -> list[float]:
    """Return the y values that a series covers: the ends of its deviations, and its seeds."""
    spreads = series.spread or (0.0,) * len(series.y)
    ends = [end for y, spread in zip(series.y, spreads, strict=True) for end in (y - spread, y + spread)]
    return [*ends, *(dot for dots in series.dots for dot in dots)]


def thin(positions: Sequence[float], gap: float) -> list[float]:
    """Drop ascending positions that are closer than `gap` to the one before; keep the last one."""
    kept: list[float] = []
    for position in positions:
        if not kept or position - kept[-1] >= gap:
            kept.append(position)
    if kept and kept[-1] != positions[-1]:
        kept[-1:] = [positions[-1]] if len(kept) > 1 else [kept[0]]
    return kept
