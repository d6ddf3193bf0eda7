"""`parameters`: H against the number of trained parameters."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

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
    """Draw a point for each method, and a dashed line for a method without trained parameters.

    Args:
        points: A row for each method, with `parameters`, `H` and `H_std`.
        style: Width and title.
        title: The title.
    """
    figure, (axes,) = style.panels(1, 2.4, title)
    for (name, look), point in zip(looks(points.index).items(), points.itertuples(), strict=True):
        if point.parameters > 0:
            axes.errorbar(
                point.parameters, point.H, point.H_std, fmt=look.marker, color=look.colour, elinewidth=0.8, label=name
            )
        else:
            axes.axhline(point.H, color=look.colour, linestyle="--", linewidth=1, label=name)
    counts = points.loc[points["parameters"] > 0, "parameters"]
    axes.set(xscale="log", xlabel="trained parameters", ylabel="H (%)", xlim=(counts.min() / 3, counts.max() * 3))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.minorticks_off()
    name_series(figure, [axes])
    return figure
