"""`datasets`: H of each method on each dataset, with a dot for each seed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pandas as pd
from matplotlib.figure import Figure

from cocoamix.experiments import pivots
from cocoamix.experiments.frame import Frame
from cocoamix.experiments.names import sort_datasets, sort_methods

from . import source
from .style import INK, Drawing, Style, looks, name_series, wrap


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure for each number of shots."""
    frame = source.find_source(args, source.Plans(source.Choice("quick"), source.Choice("base2new"))).frame()
    return source.drawings("datasets", "H of each seed", map(values_of, source.base_to_new(frame)), describe, draw)


def values_of(frame: Frame) -> pd.DataFrame:
    """Return H by method, dataset and seed."""
    values = pivots.base_to_new(frame.values)[["H"]].dropna()
    trainers = frame.runs.groupby("method")["trainer"].first()
    return values.loc[sort_methods(trainers[values.index.unique("method")].to_dict())]


def describe(values: pd.DataFrame) -> str:
    """Describe the range of H over datasets for each method."""
    means = values["H"].groupby(level=["method", "dataset"], sort=False).mean().groupby(level="method", sort=False)
    ranges = [f"{method} from {own.min():.1f} to {own.max():.1f}" for method, own in means]
    return f"H in percent on {values.index.unique('dataset').size} datasets: {'; '.join(ranges)}."


def draw(values: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw a row for each dataset, with a small dot for each seed and a large mark for the mean.

    Args:
        values: `H`, indexed by method, dataset and seed.
        style: Width and title.
        title: The title.
    """
    datasets, shown = sort_datasets(values.index.unique("dataset")), looks(values.index.unique("method"))
    figure, (axes,) = style.panels(1, 0.55 + len(datasets) * (0.14 + 0.075 * len(shown)), title)
    for place, (method, look) in enumerate(shown.items()):
        own = values["H"].xs(method, level="method")
        rows = own.index.get_level_values("dataset").map(datasets.index)
        heights = rows + 0.84 * ((place + 0.5) / len(shown) - 0.5)
        axes.plot(own, heights, ".", color=look.colour, markersize=3, alpha=0.6)
        means = own.groupby(heights).mean()
        axes.plot(means, means.index, linestyle="", marker=look.marker, color=look.colour, label=method)
    axes.set_yticks(range(len(datasets)), [wrap(dataset) for dataset in datasets])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(datasets) - 0.5, -0.5)
    axes.set_xlabel("H (%)")
    name_series(figure, [axes])
    return figure
