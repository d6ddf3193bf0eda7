"""`sessions`: accuracy after each session of class-incremental learning. The report draws curves over shots, too."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from cocoamix.errors import UserError
from cocoamix.experiments import pivots
from cocoamix.experiments.frame import Frame
from cocoamix.experiments.names import sort_datasets, sort_methods
from cocoamix.experiments.published import match
from cocoamix.experiments.sections import average_title, kinds_of_sessions

from . import source
from .style import MUTED, Drawing, Look, Style, looks, name_series, percent_range

_PLANS = source.Plans(source.Choice("quick_fscil", datasets=("warm_cool",), seeds=(1,)), source.Choice("fscil"))
_PANELS = {"accuracy": "all classes so far", "base": "base classes", "novel": "novel classes"}  # by metric

Panels = Mapping[str, pd.DataFrame]  # curves by the title of their panel


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure of the average over datasets, or of each dataset if there is no average."""
    frame = source.find_source(args, _PLANS).frame().where(task="fscil")
    if frame.runs.empty:
        raise UserError("The runs have no sessions. Give runs of class-incremental learning, such as of plan fscil.")
    for stem, (title, own) in zip(source.stems("sessions"), session_groups(frame), strict=False):
        panels = session_panels(own, match(own).rows if args.paper else None)
        data = pd.concat(panels, names=["panel"]).reset_index("panel").rename(columns={"x": "session"})
        yield Drawing(stem, title, describe(title, panels), partial(draw, panels, title=title), data)


def session_groups(frame: Frame) -> Iterator[tuple[str, Frame]]:
    """Yield titles and runs: all datasets if they can be averaged, else each dataset under each kind of sessions."""
    datasets = sort_datasets(frame.runs["dataset"])
    parts = [part for name in datasets for part in kinds_of_sessions(frame.where(dataset=name)).items()]
    alike = len({part.values["session"].max() for _, part in parts}) == 1
    if len(parts) == len(datasets) > 1 and alike and len(curves(pivots.sessions(frame.values), datasets)):
        yield average_title(datasets), frame
    else:
        yield from parts


def session_panels(frame: Frame, published: pd.DataFrame | None = None) -> dict[str, pd.DataFrame]:
    """Return the curves over sessions on all, base and novel classes, averaged over the datasets of the runs.

    Args:
        frame: Runs of class-incremental learning.
        published: Published numbers to show beside them, as in `published.Matches.rows`.
    """
    datasets = sort_datasets(frame.runs["dataset"])
    order = sort_methods(dict(zip(frame.runs["method"], frame.runs["trainer"], strict=True)))
    panels = {name: curves(pivots.sessions(frame.values, metric), datasets) for metric, name in _PANELS.items()}
    panels = {
        name: panel.sort_values("method", key=lambda names: names.map(order.index), kind="stable")
        for name, panel in panels.items()
        if len(panel)
    }
    if published is not None and len(published):
        printed = published[published["session"].notna() & published["dataset"].isin(datasets)]
        lines = pd.DataFrame({"method": printed["method"] + " (published)", "x": printed["session"]})
        lines = lines.assign(mean=printed["value"], published="published")
        panels[_PANELS["accuracy"]] = pd.concat([panels[_PANELS["accuracy"]], lines], ignore_index=True)
    return panels


def curves(wide: pd.DataFrame, datasets: Sequence[str]) -> pd.DataFrame:
    """Return a row for each method and column of a pivot, averaged over datasets, where there is an average.

    Args:
        wide: A pivot indexed by method, dataset and seed, whose columns are sessions or numbers of shots.
        datasets: The datasets to average over.

    Returns:
        `method`, `published` (""), `x` (the column), `mean`, `std`, and `by_seed`: the seeds' averages, if several.
    """
    rows = []
    average = pivots.over_datasets(wide, datasets) if len(wide) else pd.DataFrame({("mean", 0): []})
    seeds = wide[wide.index.isin(list(datasets), level="dataset")].groupby(level=["method", "seed"], sort=False).mean()
    for method, means in average["mean"].iterrows():
        for x, mean in means.dropna().items():
            std = average.loc[method, ("std", x)]
            by_seed = () if pd.isna(std) else tuple(seeds.xs(method, level="method")[x].dropna())
            rows.append((method, "", x, mean, std, by_seed))
    return pd.DataFrame(rows, columns=["method", "published", "x", "mean", "std", "by_seed"])


def describe(title: str, panels: Panels, x_label: str = "session") -> str:
    """Describe the accuracy of each method at both ends of its curve in the first panel."""
    name, whole = next(iter(panels.items()))
    groups = whole.groupby("method", sort=False)["mean"]
    ends = [f"{method} from {own.iloc[0]:.1f} to {own.iloc[-1]:.1f}" for method, own in groups]
    return f"{title}: accuracy in percent on {name}, to {x_label} {whole['x'].max()}: {'; '.join(ends)}."


def draw(panels: Panels, style: Style, title: str = "", x_label: str = "session") -> Figure:
    """Draw a panel of curves for each title: bands are deviations, dots are seeds, dashed lines are published.

    Args:
        panels: Curves, as from `curves`.
        style: Width and title.
        title: The title of the figure.
        x_label: What the columns are: sessions, or shots, where 0 is zero-shot.
    """
    figure, axes = style.panels(len(panels), 2.1, title, sharey=True)
    whole = pd.concat(list(panels.values()))
    places, spread = sorted(set(whole["x"])), whole["std"].astype(float).fillna(0)
    names = ["zero-shot" if x_label == "shots" and not x else f"{x:g}" for x in places]
    shown = looks(whole["method"].str.removesuffix(" (published)"))  # a published curve has the colour of ours
    for panel, (name, own) in zip(axes, panels.items(), strict=True):
        for method, curve in own.groupby("method", sort=False):
            look = shown[str(method).removesuffix(" (published)")]
            _draw_curve(panel, curve, [places.index(x) for x in curve["x"]], look)
        step = 1 + (len(places) - 1) // 12
        panel.set_xticks(range(0, len(places), step), names[::step])
        panel.set(xlabel=x_label, title=name if len(panels) > 1 else "")
    axes[0].set_ylim(percent_range([*(whole["mean"] - spread), *(whole["mean"] + spread)]))
    figure.supylabel("accuracy (%)", fontsize="medium", color=MUTED)
    name_series(figure, axes)
    return figure


def _draw_curve(axes: Any, own: pd.DataFrame, x: Sequence[int], look: Look) -> None:
    spread = own["std"].astype(float).fillna(0)
    axes.fill_between(x, own["mean"] - spread, own["mean"] + spread, color=look.colour, alpha=0.15, linewidth=0)
    dots = own.assign(x=x).explode("by_seed")
    axes.plot(dots["x"], dots["by_seed"].astype(float), ".", color=look.colour, markersize=2, alpha=0.8)
    dashes, width = ("--", 0.9) if own["published"].any() else ("-", 1.4)
    name = own["method"].iloc[0]
    axes.plot(x, own["mean"], dashes, marker=look.marker, color=look.colour, label=name, linewidth=width)
