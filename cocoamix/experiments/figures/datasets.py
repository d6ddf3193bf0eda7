"""`datasets`: H of each method on each dataset, with a dot for each seed."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from cocoamix.errors import UserError
from cocoamix.experiments import pivots
from cocoamix.experiments.frame import Frame
from cocoamix.experiments.names import sort_datasets, sort_methods

from . import source
from .source import Choice, Plans
from .style import GRID, INK, Drawing, Style, looks, name_series, wrap

_PLANS = Plans(Choice("quick"), Choice("base2new"))
_LACKING = "The runs have no base and new accuracy, so there is no H. Evaluate DATASET.SUBSAMPLE_CLASSES base and new."
_TITLE = "H of each seed"


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure for each number of shots."""
    frame = source.find_source(args, _PLANS).frame()
    tables = [values for own in source.base_to_new(frame) if len(values := values_of(own))]
    if not tables:
        raise UserError(_LACKING)
    for stem, values in zip(source.stems("datasets"), tables, strict=False):
        yield Drawing(stem, _TITLE, describe(values), partial(draw, values, title=_TITLE), values.reset_index())


def values_of(frame: Frame) -> pd.DataFrame:
    """Return H by method, dataset and seed. Methods on fewer than half of the datasets of others are left out."""
    values = pivots.base_to_new(frame.values)[["H"]].dropna()
    counts = values.groupby("method", sort=False).apply(lambda own: own.index.unique("dataset").size)
    trainers = frame.runs.groupby("method")["trainer"].first()
    order = sort_methods(trainers[counts.index[2 * counts >= counts.max()]].to_dict())
    return values.loc[order]


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
    step = 0.84 / len(shown)
    for place, (method, look) in enumerate(shown.items()):
        own = values["H"].xs(method, level="method")
        shift = (place - (len(shown) - 1) / 2) * step
        means = own.groupby(level="dataset").mean()
        heights = [datasets.index(dataset) + shift for dataset in means.index]
        for height, dataset in zip(heights, means.index, strict=True):
            seeds = own.xs(dataset, level="dataset")
            axes.plot(seeds, [height] * len(seeds), ".-", color=look.colour, linewidth=0.8, markersize=3, alpha=0.6)
        axes.plot(means, heights, linestyle="", marker=look.marker, color=look.colour, label=method)
    for edge in range(1, len(datasets)):
        axes.axhline(edge - 0.5, color=GRID, linewidth=0.6)
    axes.set_yticks(range(len(datasets)), [wrap(dataset) for dataset in datasets])
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_ylim(len(datasets) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("H (%)")
    name_series(figure, [axes])
    return figure
