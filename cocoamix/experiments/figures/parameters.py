"""`parameters`: H against the number of trained parameters, and base against new with bubbles of that size."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cocoamix.errors import UserError

from . import source
from .source import Choice, Plans
from .style import Drawing, Style, looks, name_series
from .tradeoff import points_of

_PLANS = Plans(Choice("methods", datasets=("warm_cool",), seeds=(1,)), Choice("base2new"))
_LACKING = (
    "The runs have no base and new accuracy of two trained methods with a number of parameters, which results.json "
    "holds and logs do not."
)
_SMALLEST, _LARGEST, _UNTRAINED = 35.0, 220.0, 18.0  # areas in square points
_DECADE = np.log(10)  # if the numbers span less than this, not the whole range of areas is used
_LABEL = 0.28  # width of the label of a number, as a fraction of the axis


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure for each number of shots."""
    frame = source.find_source(args, _PLANS).frame()
    tables = [counted for own in source.base_to_new(frame) if len(counted := with_parameters(points_of(own)))]
    if not tables:
        raise UserError(_LACKING)
    for stem, points in zip(source.stems("parameters"), tables, strict=False):
        title = f"{points.attrs['title']}: H and trained parameters"
        data = points.reset_index().drop(columns=["start", "published"])
        yield Drawing(stem, title, describe(points), partial(draw, points, title=title), data)


def with_parameters(points: pd.DataFrame) -> pd.DataFrame:
    """Return the methods whose number of parameters is known; none if fewer than two of them are trained."""
    counted = points.dropna(subset=["parameters", "H"])
    return counted if (counted["parameters"] > 0).sum() > 1 else counted.iloc[:0]


def describe(points: pd.DataFrame) -> str:
    """Describe the best method and the smallest one within a point of it."""
    trained = points[points["parameters"] > 0]
    best = trained.loc[trained["H"].idxmax()]
    highest = f"{best.name} has the highest H, {best['H']:.2f}, with {best['parameters']:,.0f} trained parameters"
    near = trained[(trained["parameters"] < best["parameters"]) & (trained["H"] >= best["H"] - 1)]
    if near.empty:
        return f"{highest}; no smaller method is within a point of it."
    least = near.loc[near["parameters"].idxmin()]
    return f"{highest}; {least.name} is within a point of it ({least['H']:.2f}) with {least['parameters']:,.0f}."


def draw(points: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw both panels. A method without trained parameters is a line in the first and a small point in the second.

    Args:
        points: A row for each method, with `parameters`, `base`, `new`, `H` and their deviations (`H_std`, ...).
        style: Width and title.
        title: The title.
    """
    figure, (over_parameters, halves) = style.panels(2, 2.4, title)
    shown, areas = looks(points.index), _areas(points["parameters"])
    for name, point in points.iterrows():
        colour, marker = shown[str(name)].colour, shown[str(name)].marker
        if point["parameters"] > 0:
            _draw_bubble(over_parameters, point, "parameters", "H", areas[name], (colour, marker))
        else:
            over_parameters.axhline(point["H"], color=colour, linestyle="--", linewidth=1)
        _draw_bubble(halves, point, "base", "new", areas[name], (colour, marker))
        halves.plot([], [], linestyle="", marker=marker, color=colour, label=name)
    over_parameters.set_xscale("log")
    over_parameters.set(xlabel="trained parameters", ylabel="H (%)")
    halves.set(xlabel="accuracy on base classes (%)", ylabel="accuracy on new classes (%)")
    halves.xaxis.set_major_locator(MaxNLocator(5))
    for axes in (over_parameters, halves):
        axes.margins(0.14)
    _label_counts(over_parameters, sorted(points.loc[points["parameters"] > 0, "parameters"].unique()))
    name_series(figure, [halves])
    return figure


def _draw_bubble(axes: Any, point: pd.Series, x: str, y: str, area: float, shown: tuple[str, Any]) -> None:
    colour, marker = shown
    axes.errorbar(
        point[x],
        point[y],
        point[f"{y}_std"],
        point.get(f"{x}_std"),
        fmt="none",
        ecolor=colour,
        elinewidth=0.8,
        zorder=3,
    )
    above = 4 + 1 / area  # smaller points are above larger ones, which would hide them
    axes.scatter(point[x], point[y], s=area, marker=marker, color=colour, alpha=0.75, linewidths=0, zorder=above)


def _areas(counts: pd.Series) -> pd.Series:
    """Return the area of each point, linear in the logarithm of its number of parameters."""
    logs = np.log(counts[counts > 0].astype(float))
    step = (_LARGEST - _SMALLEST) / max(logs.max() - logs.min(), _DECADE)
    return (_SMALLEST + step * (logs - logs.min())).reindex(counts.index).fillna(_UNTRAINED)


def _label_counts(axes: Any, counts: Sequence[float]) -> None:
    """Label the smallest and the largest number, and those between that do not touch others."""
    logs = np.log(np.asarray(counts, dtype=float))
    gap = _LABEL * max(logs[-1] - logs[0], 1e-9)
    kept = [0]
    for place in range(1, len(logs)):
        if logs[place] - logs[kept[-1]] >= gap and (logs[-1] - logs[place] >= gap or place == len(logs) - 1):
            kept.append(place)
    axes.set_xticks([counts[place] for place in kept], [f"{counts[place]:,.0f}" for place in kept])
    axes.minorticks_off()
