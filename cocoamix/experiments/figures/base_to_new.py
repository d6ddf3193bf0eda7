"""The figures of base and new accuracy: `tradeoff`, `parameters` and `datasets`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from adjustText import adjust_text
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator

from cocoamix.config.partition import LABEL

from .. import pivots
from ..frame import Frame
from ..names import is_clip, is_zero_shot, sort_datasets, sort_methods
from ..published import AVERAGE, match
from ..sections import average_title, by_shots
from ..stats import harmonic
from . import source
from .charts import PUBLISHED, draw_rows, name_published
from .style import GRID, MUTED, Drawing, Style, looks, name_series, percent_range, wrap

_REAL = [source.Choice("base2new")]
_PLANS = dict.fromkeys(("tradeoff", "datasets"), source.Plans([source.Choice("quick")], _REAL))
_PLANS["parameters"] = source.Plans([source.Choice("methods", datasets=("warm_cool",), seeds=(1,))], _REAL)


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure for each number of shots. Averages do not mix halves by label with random ones."""
    frame = source.find_frame(args, _PLANS[args.figure]).where(task="base2new")
    runs = frame.runs[frame.runs["subset"].isin(["base", "new"])]
    runs = runs[runs["draw"] == LABEL] if runs["draw"].nunique() > 1 else runs
    for part, _, _ in by_shots(frame.only(runs.index)) if len(runs) else ():
        published = match(part).rows if getattr(args, "paper", False) else pd.DataFrame()
        for drawing in drawings(part, published):
            if drawing.stem == args.figure:
                yield source.captioned(drawing, part)


def drawings(frame: Frame, published: pd.DataFrame) -> Iterator[Drawing]:
    """Yield the figures of runs on base and new classes under one number of shots, as far as there are numbers.

    Args:
        frame: The runs.
        published: Published numbers to show beside them, as in `published.Matches.rows`.
    """
    points, values = points_of(frame, published), values_of(frame)
    title = average_title(sort_datasets(values.index.unique("dataset")))
    if len(points) > 1:  # a single point shows no trade-off
        yield _drawing("tradeoff", f"{title}: base and new", points, describe_points, draw_points)
    counted = points[points["published"] == ""].dropna(subset=["parameters", "H"])
    if (counted["parameters"] > 0).sum() > 1:
        yield _drawing("parameters", f"{title}: H and trained parameters", counted, _describe_counts, draw_counts)
    if values["H"].notna().any():
        yield _drawing("datasets", "H of each seed", values[["H"]].dropna(), _describe_values, _draw_values)


def _drawing(stem: str, title: str, data: pd.DataFrame, describe: Any, draw: Any) -> Drawing:
    return Drawing(stem, title, describe(data), partial(draw, data, title=title), data.reset_index())


def values_of(frame: Frame) -> pd.DataFrame:
    """Return base, new and H by method, dataset and seed."""
    values = pivots.base_to_new(frame.values)
    trainers = frame.runs.groupby("method")["trainer"].first()
    return values.loc[sort_methods(trainers[values.index.unique("method")].to_dict())]


# ---------------------------------------------------------------------------------------- tradeoff


def points_of(frame: Frame, published: pd.DataFrame) -> pd.DataFrame:
    """Return base, new and H of each method that has base and new of all datasets, averaged over them.

    Each has its deviations (`base_std`, ...), the `parameters` that it trains if all its runs state them, the place of
    a `published` number ("" for own runs), and the method at the `start` of its arrow ("" for none).
    """
    wide, trainers = values_of(frame), frame.runs.groupby("method")["trainer"].first()
    datasets, order = list(wide.index.unique("dataset")), wide.index.unique("method")
    average = pivots.over_datasets(wide, datasets)
    points = average["mean"].join(average["std"].add_suffix("_std"))
    counts = frame.runs[frame.runs["subset"] == "base"].groupby("method")["parameters"]
    points["parameters"] = counts.agg(lambda column: column.astype("Float64").mean(skipna=False))
    points = points.loc[order].dropna(subset=["base", "new"])
    clips = [name for name in points.index if is_clip(trainers[name])]
    start = clips[0] if len(clips) == 1 else ""
    starts = ["" if is_zero_shot(trainers[name]) else start for name in points.index]
    printed = _published(published, AVERAGE if len(datasets) > 1 else datasets[0]) if len(published) else []
    return pd.concat([points.assign(published="", start=starts), *printed]).rename_axis("method")


def _published(rows: pd.DataFrame, dataset: str) -> Iterator[pd.DataFrame]:
    """Yield the published points of each table that has numbers for each dataset."""
    for (place, _), own in name_published(rows).groupby(["place", "source_name"], sort=False):
        chosen = own[own["dataset"].eq(dataset) & own["column"].isin(["base", "new", "H"])]
        if len(chosen) and not own["dataset"].eq(AVERAGE).all():
            chosen = chosen.drop_duplicates(["method", "column"])
            wide = chosen.pivot(index="method", columns="column", values=["value", "spread"])
            wide = wide.loc[chosen["method"].unique()]
            points = wide["value"].join(wide["spread"].add_suffix("_std")).dropna(subset=["base", "new"])
            clip = next((name for name in points.index if name.startswith(f"CLIP{PUBLISHED}")), "")
            yield points.assign(published=place, start=["" if name == clip else clip for name in points.index])


def describe_points(points: pd.DataFrame) -> str:
    """Describe where the methods are, from the starts of their arrows."""
    parts = []
    for start, ends in points.groupby("start", sort=False):
        base, new = points.loc[start, ["base", "new"]] if start else (0, 0)
        against = f" against {start}" if start else ""
        moves = [f"{end.Index} {end.base - base:+.1f} and {end.new - new:+.1f}" for end in ends.itertuples()]
        parts.append(f"Points on base and on new classes{against}: {'; '.join(moves)}.")
    return " ".join(parts)


def draw_points(points: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw methods as points over lines of equal H. Published numbers are hollow; arrows start at zero-shot CLIP."""
    figure, (axes,) = style.panels(1, max(2.75, 0.5 * (style.width or 0)), title)
    axes.set(xlabel="accuracy on base classes (%)", ylabel="accuracy on new classes (%)")
    for side, set_limits in (("base", axes.set_xlim), ("new", axes.set_ylim)):
        spread = points[f"{side}_std"].fillna(0)
        set_limits(percent_range([*(points[side] - spread), *(points[side] + spread)], 0.15))
    _draw_levels(axes)
    methods = [str(name).partition(PUBLISHED)[0] for name in points.index]  # they look like ours
    for method, point in zip(methods, points.itertuples(), strict=True):
        look = looks(methods)[method]
        line = {"ecolor": look.colour, "elinewidth": 0.8, "fmt": "none"}
        axes.errorbar(point.base, point.new, point.new_std, point.base_std, **line)
        mark = {"linestyle": "", "marker": look.marker, "color": look.colour, "clip_on": False, "zorder": 4}
        mark |= {"markerfacecolor": "none"} if point.published else {}
        axes.plot(point.base, point.new, **mark, label=point.Index)
        if point.start:
            arrow = {"arrowstyle": "->", "color": look.colour, "alpha": 0.45, "shrinkA": 4, "shrinkB": 4}
            start = tuple(points.loc[point.start, ["base", "new"]])
            axes.annotate("", (point.base, point.new), start, arrowprops=arrow)
    if not _write_names(figure, axes, points):
        name_series(figure, [axes])
    return figure


def _draw_levels(axes: Any) -> None:
    """Draw lines of equal H, with their levels where they leave the axes at the right and at the top."""
    axes.grid(visible=False)
    base, new = (np.linspace(max(low, 1e-6), high, 200) for low, high in (axes.get_xlim(), axes.get_ylim()))
    across, up = np.meshgrid(base, new)
    levels = axes.contour(across, up, harmonic(across, up), levels=7, colors=GRID, linewidths=0.8, zorder=0.5).levels
    right, top = axes.secondary_yaxis("right").yaxis, axes.secondary_xaxis("top").xaxis
    for axis, edge, other in ((right, base[-1], new), (top, new[-1], base)):
        ends = {level * edge / (2 * edge - level): f"H {level:g}" for level in levels if level < 2 * edge}
        shown = {end: name for end, name in ends.items() if other[0] <= end < other[-1]}
        axis.set_ticks(list(shown), list(shown.values()), fontsize=6.5)


def _write_names(figure: Figure, axes: Any, points: pd.DataFrame) -> bool:
    """Write the name of each point next to it; return False, without names, if there is no room for all."""
    figure.draw_without_rendering()  # fixes the place of the axes, which texts are placed in
    figure.set_layout_engine("none")
    texts = [axes.text(p.base, p.new, wrap(p.Index), fontsize=7, va="top") for p in points.itertuples()]
    # The number of steps is fixed, because a limit in time would give another figure on a busy machine.
    force = {"force_text": (0.3, 0.5), "force_static": (0.3, 0.5), "expand": (1.3, 1.8), "iter_lim": 200}
    leader = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkB": 3}
    _, leaders = adjust_text(texts, objects=axes.lines, ax=axes, **force, min_arrow_len=6, arrowprops=leader)
    boxes, marks = ([part.get_window_extent() for part in parts] for parts in (texts, axes.lines))
    if not any(box.overlaps(other) for box, other in [*combinations(boxes, 2), *product(boxes, marks)]):
        return True
    for part in (*texts, *leaders):
        part.remove()
    figure.set_layout_engine("constrained")
    return False


# ---------------------------------------------------------------------------------------- parameters


def _describe_counts(points: pd.DataFrame) -> str:
    """Describe the best method and the smallest one within a point of it."""
    trained = points[points["parameters"] > 0]
    best, near = trained.loc[trained["H"].idxmax()], trained[trained["H"] >= trained["H"].max() - 1]
    least = near.loc[near["parameters"].idxmin()]
    return (
        f"{best.name} has the highest H, {best['H']:.2f}, with {best['parameters']:,.0f} trained parameters. The "
        f"smallest within a point of it is {least.name}, {least['H']:.2f} with {least['parameters']:,.0f}."
    )


def draw_counts(points: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw H over the number of parameters, and a dashed line for a method that trains none."""
    figure, (axes,) = style.panels(1, 2.4, title)
    for (name, look), point in zip(looks(points.index).items(), points.itertuples(), strict=True):
        shown = {"color": look.colour, "label": name}
        if point.parameters > 0:
            axes.errorbar(point.parameters, point.H, point.H_std, fmt=look.marker, elinewidth=0.8, **shown)
        else:
            axes.axhline(point.H, linestyle="--", linewidth=1, **shown)
    counts = points.loc[points["parameters"] > 0, "parameters"]
    axes.set(xscale="log", xlabel="trained parameters", ylabel="H (%)", xlim=(counts.min() / 3, counts.max() * 3))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.minorticks_off()
    name_series(figure, [axes])
    return figure


# ---------------------------------------------------------------------------------------- datasets


def _describe_values(values: pd.DataFrame) -> str:
    """Describe the range of H over datasets for each method."""
    means = values["H"].groupby(level=["method", "dataset"], sort=False).mean().groupby(level="method", sort=False)
    ranges = [f"{method} from {own.min():.1f} to {own.max():.1f}" for method, own in means]
    return f"H in percent on {values.index.unique('dataset').size} datasets: {'; '.join(ranges)}."


def _draw_values(values: pd.DataFrame, style: Style, title: str = "") -> Figure:
    rows = values.reset_index().rename(columns={"dataset": "row", "method": "series", "H": "value"})
    order = sort_datasets(rows["row"])
    rows = rows.sort_values("row", key=lambda names: names.map(order.index), kind="stable")
    return draw_rows(rows, style, title, "H (%)")
