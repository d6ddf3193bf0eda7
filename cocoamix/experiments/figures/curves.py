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
from .source import Choice, Plans
from .style import Drawing, Look, Style, looks, name_series, percent_range

_PLANS = Plans(Choice("quick_fscil", datasets=("warm_cool",), seeds=(1,)), Choice("fscil"))
_LACKING = (
    "The runs have no sessions. Give runs of class-incremental learning, such as those of `cocoamix bench run fscil`."
)
_PANELS = {"accuracy": "all classes so far", "base": "base classes", "novel": "novel classes"}  # by metric
_MOST_TICKS = 12
_SHARED = 1.5  # panels share the ends of their axes if that makes the longest at most this much longer

Panels = Mapping[str, pd.DataFrame]  # curves by the title of their panel


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure of the average over datasets, or of each dataset if there is no average."""
    frame = source.find_source(args, _PLANS).frame().where(task="fscil")
    if frame.runs.empty:
        raise UserError(_LACKING)
    for stem, (title, own) in zip(source.stems("sessions"), session_groups(frame), strict=False):
        panels = session_panels(own, match(own).rows if args.paper else None)
        data = pd.concat(panels, names=["panel"]).reset_index("panel").rename(columns={"x": "session"})
        yield Drawing(stem, title, describe(title, panels), partial(draw, panels, title=title), data)


# ---------------------------------------------------------------------------------------- data


def session_groups(frame: Frame) -> Iterator[tuple[str, Frame]]:
    """Yield titles and runs: all datasets if they can be averaged, else each dataset under each kind of sessions."""
    datasets = sort_datasets(frame.runs["dataset"])
    kinds = [kinds_of_sessions(frame.where(dataset=name)) for name in datasets]
    parts = {title: part for tables in kinds for title, part in tables.items()}
    counts = {int(part.values["session"].max()) for part in parts.values()}
    alike = len(parts) == len(datasets) > 1 and len(counts) == 1
    if alike and not curves(pivots.sessions(frame.values), datasets).empty:
        yield average_title(datasets), frame
    else:
        yield from parts.items()


def session_panels(frame: Frame, published: pd.DataFrame | None = None) -> dict[str, pd.DataFrame]:
    """Return the curves over sessions on all, base and novel classes, averaged over the datasets of the runs.

    Args:
        frame: Runs of class-incremental learning.
        published: Published numbers to show beside them, as in `published.Matches.rows`.
    """
    datasets = sort_datasets(frame.runs["dataset"])
    panels = {name: curves(pivots.sessions(frame.values, metric), datasets) for metric, name in _PANELS.items()}
    order = sort_methods(dict(zip(frame.runs["method"], frame.runs["trainer"], strict=True)))
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
    columns = ["method", "published", "x", "mean", "std", "by_seed"]
    if wide.empty:  # such as the novel classes of a single session
        return pd.DataFrame(columns=columns)
    average = pivots.over_datasets(wide, datasets)
    of_seed = wide[wide.index.isin(list(datasets), level="dataset")].groupby(level=["method", "seed"], sort=False)
    seeds = of_seed.mean().where(of_seed.count() == len(datasets))
    rows = []
    for method, means in average["mean"].iterrows():
        for x, mean in means.dropna().items():
            std = average.loc[method, ("std", x)]
            by_seed = () if pd.isna(std) else tuple(seeds.xs(method, level="method")[x].dropna())
            rows.append((method, "", x, mean, std, by_seed))
    return pd.DataFrame(rows, columns=columns)


def describe(title: str, panels: Panels, x_label: str = "session") -> str:
    """Describe the accuracy of each method at both ends of its curve in the first panel."""
    whole = next(iter(panels.values()))
    ends = [
        f"{method} from {first:.1f} to {last:.1f} ({last - first:+.1f})"
        for method, own in whole.groupby("method", sort=False)
        for first, last in [(own["mean"].iloc[0], own["mean"].iloc[-1])]
    ]
    name, last = next(iter(panels)), whole["x"].max()
    return f"{title}: accuracy in percent on {name}, to {x_label} {last}: {'; '.join(ends)}."


# ---------------------------------------------------------------------------------------- drawing


def draw(panels: Panels, style: Style, title: str = "", x_label: str = "session") -> Figure:
    """Draw a panel of curves for each title: bands are deviations, dots are seeds, dashed lines are published.

    Args:
        panels: Curves, as from `curves`.
        style: Width and title.
        title: The title of the figure.
        x_label: What the columns are: sessions, or shots, where 0 is zero-shot.
    """
    figure, axes = style.panels(len(panels), 2.1, title)
    places = sorted({x for panel in panels.values() for x in panel["x"]})
    kinds = pd.concat(list(panels.values())).set_index("method")["published"].to_dict()
    # A published curve has the colour of our curve of that method.
    methods = {name: name.removesuffix(f" ({kind})") if kind else name for name, kind in kinds.items()}
    shown = looks(methods.values())
    for panel, name, limits in zip(axes, panels, _limits(panels), strict=True):
        for method, own in panels[name].groupby("method", sort=False):
            _draw_curve(panel, own, [places.index(x) for x in own["x"]], shown[methods[method]])
        labelled = range(0, len(places), 1 + (len(places) - 1) // _MOST_TICKS)
        names = ["zero-shot" if x_label == "shots" and not places[at] else f"{places[at]:g}" for at in labelled]
        panel.set_xticks(labelled, names)
        panel.set(xlim=(-0.3, len(places) - 0.7), ylim=limits, xlabel=x_label, ylabel="accuracy (%)")
        if len(panels) > 1:
            panel.set_title(name)
    name_series(figure, axes)
    return figure


def _draw_curve(axes: Any, own: pd.DataFrame, x: Sequence[int], look: Look) -> None:
    spread = own["std"].fillna(0)
    if spread.any():
        axes.fill_between(x, own["mean"] - spread, own["mean"] + spread, color=look.colour, alpha=0.15, linewidth=0)
    for at, seeds in zip(x, own["by_seed"], strict=True):
        dots = seeds if isinstance(seeds, tuple) else ()
        axes.plot([at] * len(dots), dots, ".", color=look.colour, markersize=2, alpha=0.8)
    dashes, width = ("--", 0.9) if own["published"].any() else ("-", 1.4)
    name = own["method"].iloc[0]
    axes.plot(x, own["mean"], dashes, marker=look.marker, color=look.colour, label=name, linewidth=width)


def _limits(panels: Panels) -> list[tuple[float, float]]:
    """Return the ends of the y axes of panels that readers compare: the same, or of the same length.

    If the levels of the panels are so far apart that one axis would hide the differences within each, a point of
    accuracy still has the same height in all of them.
    """
    own = []
    for panel in panels.values():
        spread = panel["std"].astype(float).fillna(0)
        seeds = [value for values in panel["by_seed"] if isinstance(values, tuple) for value in values]
        own.append(percent_range([*(panel["mean"] - spread), *(panel["mean"] + spread), *seeds]))
    longest = max(high - low for low, high in own)
    whole = min(low for low, _ in own), max(high for _, high in own)
    if whole[1] - whole[0] <= _SHARED * longest:
        return [whole] * len(own)
    return [percent_range(ends, 0.0, longest) for ends in own]
