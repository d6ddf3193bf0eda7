"""`tradeoff`: accuracy on new classes against accuracy on base classes, a point for each method."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from adjustText import adjust_text
from matplotlib.figure import Figure

from cocoamix.experiments import pivots
from cocoamix.experiments.frame import Frame
from cocoamix.experiments.names import is_clip, is_zero_shot, sort_datasets, sort_methods
from cocoamix.experiments.published import AVERAGE, match
from cocoamix.experiments.sections import average_title
from cocoamix.experiments.stats import harmonic

from . import source
from .style import GRID, MUTED, Drawing, Style, looks, name_series, percent_range, wrap

PLANS = source.Plans(source.Choice("quick"), source.Choice("base2new"))


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure for each number of shots."""
    parts = source.base_to_new(source.find_source(args, PLANS).frame())
    tables = (points_of(part, match(part).rows if args.paper else None) for part in parts)
    several = (points for points in tables if len(points) > 1)
    return source.drawings("tradeoff", "base and new", several, describe, draw)


def points_of(frame: Frame, published: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return base, new and H of each method that has base and new of all datasets, averaged over them.

    Args:
        frame: Runs on base and new classes under one number of shots.
        published: Published numbers to show beside them, as in `published.Matches.rows`.

    Returns:
        A row for each method, with its deviations (`base_std`, ...), the `parameters` that it trains if all its runs
        state them, `published` ("" for own runs), and the method at the `start` of its arrow ("" for none). The
        attribute `title` names the datasets.
    """
    wide = pivots.base_to_new(frame.values)
    datasets, trainers = sort_datasets(wide.index.unique("dataset")), frame.runs.groupby("method")["trainer"].first()
    average = pivots.over_datasets(wide, datasets)
    points = average["mean"].join(average["std"].add_suffix("_std"))
    counts = frame.runs[frame.runs["subset"] == "base"].groupby("method")["parameters"]
    points["parameters"] = counts.agg(lambda column: column.astype("Float64").mean(skipna=False))
    points = (
        points.loc[sort_methods(trainers[points.index].to_dict())].assign(published="").dropna(subset=["base", "new"])
    )
    if published is not None and len(published):
        points = pd.concat([points, _published(published, AVERAGE if len(datasets) > 1 else datasets[0])])
    points["start"] = _starts(points, trainers)
    points.index.name = "method"
    points.attrs["title"] = average_title(datasets)
    return points


def _published(rows: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Return the published points of tables that have numbers for each dataset."""
    by_dataset = rows.groupby("place")["dataset"].transform(lambda names: not names.eq(AVERAGE).all()).astype(bool)
    chosen = rows[by_dataset & rows["dataset"].eq(dataset) & rows["column"].isin(["base", "new", "H"])]
    chosen = chosen.assign(method=chosen["method"] + " (published)").drop_duplicates(["method", "column"])
    wide = chosen.pivot(index="method", columns="column", values=["value", "spread"]).reindex(chosen["method"].unique())
    points = wide["value"].join(wide["spread"].add_suffix("_std"))
    return points.assign(published="published").dropna(subset=["base", "new"])


def _starts(points: pd.DataFrame, trainers: pd.Series) -> list[str]:
    """Return the zero-shot CLIP that each trained method is compared with; "" if there is not one CLIP."""
    clips = [name for name in points.index if name in trainers and is_clip(trainers[name])]
    own, printed = clips[0] if len(clips) == 1 else "", "CLIP (published)" if "CLIP (published)" in points.index else ""
    fixed = {printed, *(name for name in trainers.index if is_zero_shot(trainers[name]))}
    kinds = points["published"].items()
    return ["" if name in fixed else printed if published else own for name, published in kinds]


def describe(points: pd.DataFrame) -> str:
    """Describe where the methods are, from the starts of their arrows."""
    parts = []
    for start, ends in points.groupby("start", sort=False):
        base, new = points.loc[start, ["base", "new"]] if start else (0, 0)
        against = f" against {start}" if start else ""
        moves = [f"{end.Index} {end.base - base:+.1f} and {end.new - new:+.1f}" for end in ends.itertuples()]
        parts.append(f"Points on base and on new classes{against}: {'; '.join(moves)}.")
    return " ".join(parts)


def draw(points: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw methods as points over lines of equal H. Published numbers are hollow; arrows start at zero-shot CLIP.

    Args:
        points: A row for each method, as from `points_of`.
        style: Width and title.
        title: The title.
    """
    figure, (axes,) = style.panels(1, max(2.75, 0.5 * (style.width or 0)), title)
    axes.set(xlabel="accuracy on base classes (%)", ylabel="accuracy on new classes (%)")
    for side, set_limits in (("base", axes.set_xlim), ("new", axes.set_ylim)):
        spread = points[f"{side}_std"].fillna(0)
        set_limits(percent_range([*(points[side] - spread), *(points[side] + spread)], 0.15))
    _draw_levels(axes)
    methods = [str(name).removesuffix(" (published)") for name in points.index]  # they look like ours
    for method, point in zip(methods, points.itertuples(), strict=True):
        look = looks(methods)[method]
        axes.errorbar(
            point.base, point.new, point.new_std, point.base_std, fmt="none", ecolor=look.colour, elinewidth=0.8
        )
        face = "none" if point.published else look.colour
        mark = {"linestyle": "", "marker": look.marker, "color": look.colour, "markerfacecolor": face}
        axes.plot(point.base, point.new, **mark, label=point.Index, clip_on=False, zorder=4)
        if point.start:
            line = {"arrowstyle": "->", "color": look.colour, "alpha": 0.45, "shrinkA": 4, "shrinkB": 4}
            axes.annotate("", (point.base, point.new), tuple(points.loc[point.start, ["base", "new"]]), arrowprops=line)
    if not _write_names(figure, axes, points):
        name_series(figure, [axes])
    return figure


def _draw_levels(axes: Any) -> None:
    """Draw lines of equal H, with their levels where they leave the axes at the right and at the top."""
    axes.grid(visible=False)
    base, new = (np.linspace(max(low, 1e-6), high, 200) for low, high in (axes.get_xlim(), axes.get_ylim()))
    across, up = np.meshgrid(base, new)
    levels = axes.contour(across, up, harmonic(across, up), levels=7, colors=GRID, linewidths=0.8, zorder=0.5).levels
    for side, edge, other in (("right", base[-1], new), ("top", new[-1], base)):
        ends = {level * edge / (2 * edge - level): f"H {level:g}" for level in levels if level < 2 * edge}
        shown = {end: name for end, name in ends.items() if other[0] <= end < other[-1]}
        axis = axes.secondary_yaxis("right").yaxis if side == "right" else axes.secondary_xaxis("top").xaxis
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
