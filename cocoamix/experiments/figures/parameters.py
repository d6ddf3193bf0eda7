"""`parameters`: H against the number of trained parameters, and base against new with bubbles of that size."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator

from . import source
from .style import Drawing, Style, looks, name_series
from .tradeoff import points_of

_PLANS = source.Plans(source.Choice("methods", datasets=("warm_cool",), seeds=(1,)), source.Choice("base2new"))


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure for each number of shots."""
    parts = source.base_to_new(source.find_source(args, _PLANS).frame())
    tables = (with_parameters(points_of(part)) for part in parts)
    return source.drawings("parameters", "H and trained parameters", tables, describe, draw)


def with_parameters(points: pd.DataFrame) -> pd.DataFrame:
    """Return the methods whose number of parameters is known; none if fewer than two of them are trained."""
    counted = points.dropna(subset=["parameters", "H"]).drop(columns=["start", "published"])
    return counted if (counted["parameters"] > 0).sum() > 1 else counted.iloc[:0]


def describe(points: pd.DataFrame) -> str:
    """Describe the best method and the smallest one within a point of it."""
    trained = points[points["parameters"] > 0]
    best, near = trained.loc[trained["H"].idxmax()], trained[trained["H"] >= trained["H"].max() - 1]
    least = near.loc[near["parameters"].idxmin()]
    return (
        f"{best.name} has the highest H, {best['H']:.2f}, with {best['parameters']:,.0f} trained parameters. The "
        f"smallest within a point of it is {least.name}, {least['H']:.2f} with {least['parameters']:,.0f}."
    )


def draw(points: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw both panels. A method without trained parameters is a line in the first and a small point in the second.

    Args:
        points: A row for each method, with `parameters`, `base`, `new`, `H` and their deviations (`H_std`, ...).
        style: Width and title.
        title: The title.
    """
    figure, (over_parameters, halves) = style.panels(2, 2.4, title)
    for (name, look), point in zip(looks(points.index).items(), points.itertuples(), strict=True):
        area = 20 + 30 * np.log10(max(point.parameters, 1))  # square points
        bubble = {"s": area, "marker": look.marker, "color": look.colour, "alpha": 0.75, "linewidths": 0}
        bars = {"fmt": "none", "ecolor": look.colour, "elinewidth": 0.8}
        if point.parameters > 0:
            over_parameters.scatter(point.parameters, point.H, **bubble)
            over_parameters.errorbar(point.parameters, point.H, point.H_std, **bars)
        else:
            over_parameters.axhline(point.H, color=look.colour, linestyle="--", linewidth=1)
        halves.scatter(point.base, point.new, **bubble)
        halves.errorbar(point.base, point.new, point.new_std, point.base_std, **bars)
        halves.plot([], [], linestyle="", marker=look.marker, color=look.colour, label=name)
    counts = points.loc[points["parameters"] > 0, "parameters"]
    over_parameters.set(
        xscale="log", xlim=(counts.min() / 3, counts.max() * 3), xlabel="trained parameters", ylabel="H (%)"
    )
    over_parameters.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    over_parameters.xaxis.set_major_formatter(EngFormatter(sep=""))
    over_parameters.minorticks_off()
    halves.set(xlabel="accuracy on base classes (%)", ylabel="accuracy on new classes (%)")
    for axes in (over_parameters, halves):
        axes.margins(y=0.14)
    halves.margins(x=0.14)
    name_series(figure, [halves])
    return figure
