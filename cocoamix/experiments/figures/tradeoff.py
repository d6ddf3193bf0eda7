"""`tradeoff`: accuracy on new classes against accuracy on base classes, a point for each method."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from adjustText import adjust_text
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox

from cocoamix.errors import UserError
from cocoamix.experiments import pivots
from cocoamix.experiments.frame import Frame
from cocoamix.experiments.labels import not_comparable
from cocoamix.experiments.names import is_clip, is_zero_shot, sort_datasets, sort_methods
from cocoamix.experiments.published import AVERAGE, match
from cocoamix.experiments.sections import average_title

from . import source
from .source import Choice, Plans
from .style import GRID, INK, MUTED, Drawing, Look, Style, looks, name_series, percent_range, wrap

_PLANS = Plans(Choice("quick"), Choice("base2new"))
_LACKING = (
    "The runs have no base and new accuracy of two methods, so there is nothing to compare. Evaluate them with "
    "DATASET.SUBSAMPLE_CLASSES base and new. Runs of several random halves are for `cocoamix figures assumption`."
)
_MOST_NAMES = 16  # next to the points; more names are in a legend
# Where names start from their points, and the forces (across, up) with which they push each other away.
_STARTS = tuple(product(((0.3, 0.5), (0.1, 0.2)), ("left", "right"), ("bottom", "top")))
_MARK = 3.2  # half of a marker, in points


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure for each number of shots."""
    frames = source.base_to_new(source.find_source(args, _PLANS).frame())
    tables = [points_of(frame, match(frame).rows if args.paper else None) for frame in frames]
    tables = [points for points in tables if len(points) > 1]
    if not tables:
        raise UserError(_LACKING)
    for stem, points in zip(source.stems("tradeoff"), tables, strict=False):
        title = f"{points.attrs['title']}: base and new"
        yield Drawing(stem, title, describe(points), partial(draw, points, title=title), points.reset_index())


def points_of(frame: Frame, published: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return base, new and H of each method that has base and new of all datasets, averaged over them.

    Args:
        frame: Runs on base and new classes under one number of shots.
        published: Published numbers to show beside them, as in `published.Matches.rows`.

    Returns:
        A row for each method, with its deviations (`base_std`, ...), its number of trained `parameters` if its runs
        state it, and the columns of `draw`. The attribute `title` names the datasets.
    """
    wide = pivots.base_to_new(frame.values)
    datasets = sort_datasets(wide.index.unique("dataset"))
    average = pivots.over_datasets(wide, datasets)
    trainers = frame.runs.groupby("method")["trainer"].first()
    points = average["mean"].join(average["std"].add_suffix("_std"))
    points["parameters"] = _parameters(frame).reindex(points.index)
    points = points.loc[sort_methods(trainers[points.index].to_dict())].dropna(subset=["base", "new"])
    clips = [name for name in points.index if is_clip(trainers[name])]
    trained = [name for name in points.index if not is_zero_shot(trainers[name])]
    points["published"] = ""
    points["start"] = pd.Series({name: _start(frame.runs, name, clips) for name in trained}, dtype=object)
    points["start"] = points["start"].fillna("")
    if published is not None and len(published):
        points = pd.concat([points, _published(published, AVERAGE if len(datasets) > 1 else datasets[0])])
    points.index.name = "method"
    points.attrs["title"] = average_title(datasets)
    return points


def _published(rows: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Return the published points of tables that have numbers for each dataset."""
    by_dataset = rows.groupby("place")["dataset"].transform(lambda names: not names.eq(AVERAGE).all()).astype(bool)
    chosen = rows[by_dataset & rows["dataset"].eq(dataset) & rows["column"].isin(["base", "new", "H"])]
    if chosen.empty:  # tables of averages alone, or of other datasets
        return pd.DataFrame()
    chosen = chosen.assign(method=chosen["method"] + " (published)").drop_duplicates(["method", "column"])
    wide = chosen.pivot(index="method", columns="column", values=["value", "spread"])
    points = wide["value"].join(wide["spread"].add_suffix("_std")).reindex(chosen["method"].unique())
    clip = "CLIP (published)"
    starts = [clip if clip in points.index and name != clip else "" for name in points.index]
    return points.assign(published="published", start=starts).dropna(subset=["base", "new"])


def _parameters(frame: Frame) -> pd.Series:
    """Return the number of trained parameters of each method, averaged over its models; missing if a run lacks it."""
    counts = (
        frame.runs[frame.runs["subset"] == "base"].astype({"parameters": "Float64"}).groupby("method")["parameters"]
    )
    return counts.agg(lambda column: column.mean(skipna=False))


def _start(runs: pd.DataFrame, method: str, clips: Sequence[str]) -> str:
    """Return the only one of the zero-shot methods that a method can be compared with; "" if there is not one."""
    first = runs.drop_duplicates(["method", "dataset", "subset"])
    cells = {(run.method, run.dataset, run.subset): run for run in first.itertuples()}
    differing = {
        clip
        for clip in clips
        for (name, *cell), run in cells.items()
        if name == method and (clip, *cell) in cells and not_comparable(run, cells[clip, *cell])
    }
    starts = [clip for clip in clips if clip not in differing]
    return starts[0] if len(starts) == 1 else ""


def describe(points: pd.DataFrame) -> str:
    """Describe what each method gains or loses on base and on new classes, from the start of its arrow."""
    parts = ["Accuracy on base and on new classes, in points."]
    for start, ends in points[points["start"] != ""].groupby("start", sort=False):
        base, new = points.loc[start, ["base", "new"]]
        moves = [f"{end.Index} {end.base - base:+.1f} and {end.new - new:+.1f}" for end in ends.itertuples()]
        parts.append(f"Against {start} ({base:.1f}, {new:.1f}): {'; '.join(moves)}.")
    if len(parts) == 1:
        parts.append(
            "; ".join(f"{row.Index}: base {row.base:.1f}, new {row.new:.1f}" for row in points.itertuples()) + "."
        )
    return " ".join(parts)


# ---------------------------------------------------------------------------------------- drawing


def draw(points: pd.DataFrame, style: Style, title: str = "") -> Figure:
    """Draw methods as points over lines of equal H. Published numbers are hollow; arrows start at zero-shot CLIP.

    Args:
        points: A row for each method, with `base`, `new`, `base_std`, `new_std`, `published` ("" for own runs, else
            the end of its name in brackets), and the method at the `start` of its arrow ("" for none).
        style: Width and title.
        title: The title.
    """
    figure, (axes,) = style.panels(1, max(2.75, 0.5 * (style.width or 0)), title)
    axes.set(xlabel="accuracy on base classes (%)", ylabel="accuracy on new classes (%)")
    for side, set_limits in (("base", axes.set_xlim), ("new", axes.set_ylim)):
        spread = points[f"{side}_std"].fillna(0)
        set_limits(percent_range([*(points[side] - spread), *(points[side] + spread)], 0.15))
    axes.grid(visible=False)  # lines of equal H take its place
    # A published point looks like our point of that method.
    methods = {name: name.removesuffix(f" ({kind})") if kind else name for name, kind in points["published"].items()}
    shown = looks(methods.values())
    for name, point in points.iterrows():
        _draw_point(axes, point, shown[methods[name]])
        _draw_arrow(axes, points, point, shown[methods[name]])
    figure.draw_without_rendering()  # fixes the place of the axes, which texts are placed in
    figure.set_layout_engine("none")
    levels = _draw_levels(axes, points)
    fits = len(points) <= _MOST_NAMES and any(_write_names(axes, points, levels, *start) for start in _STARTS)
    if not fits:
        figure.set_layout_engine("constrained")
        name_series(figure, [axes])
    return figure


def _draw_point(axes: Any, point: pd.Series, shown: Look) -> None:
    where = point["base"], point["new"]
    axes.errorbar(*where, point["new_std"], point["base_std"], fmt="none", ecolor=shown.colour, elinewidth=0.8)
    face = "none" if point["published"] else shown.colour
    axes.plot(
        *where,
        linestyle="",
        marker=shown.marker,
        color=shown.colour,
        mfc=face,
        label=point.name,
        clip_on=False,
        zorder=4,
    )


def _draw_arrow(axes: Any, points: pd.DataFrame, point: pd.Series, shown: Look) -> None:
    if not point["start"]:
        return
    start = points.loc[point["start"]]
    line = {"arrowstyle": "->", "color": shown.colour, "shrinkA": 4, "shrinkB": 4, "mutation_scale": 7}
    line |= (
        {"linewidth": 0.6, "alpha": 0.4, "linestyle": ":"} if point["published"] else {"linewidth": 0.7, "alpha": 0.45}
    )
    axes.annotate("", (point["base"], point["new"]), (start["base"], start["new"]), arrowprops=line, zorder=2)


def _draw_levels(axes: Any, points: pd.DataFrame) -> list[Any]:
    """Draw lines of equal H; write each level where its line is farthest from points and other levels."""
    base, new = (np.linspace(max(low, 1e-6), high, 200) for low, high in (axes.get_xlim(), axes.get_ylim()))
    across, up = np.meshgrid(base, new)
    harmonic = 2 * across * up / (across + up)
    levels = MaxNLocator(7, steps=[1, 2, 5, 10]).tick_values(harmonic.min(), harmonic.max())
    lines = axes.contour(across, up, harmonic, levels=levels, colors=GRID, linewidths=0.8, zorder=0.5)
    taken = axes.transData.transform(points[["base", "new"]].to_numpy())
    texts = []
    for level, path in zip(lines.levels, lines.get_paths(), strict=True):
        text = axes.text(0, 0, f"H {level:g}", color=MUTED, fontsize=6.5, ha="center", va="center", zorder=1)
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 0.6})
        size = text.get_window_extent()
        frame = axes.get_window_extent().padded(-size.width / 2 - 2, -size.height / 2 - 2)
        spots = np.array([spot for spot in axes.transData.transform(path.vertices) if frame.contains(*spot)])
        if not len(spots):
            text.remove()
            continue
        distances = np.linalg.norm(spots[:, None] - taken[None], axis=2).min(axis=1)
        best = spots[distances.argmax()]
        text.set_position(axes.transData.inverted().transform(best))
        taken = np.vstack([taken, best])
        texts.append(text)
    return texts


def _write_names(
    axes: Any, points: pd.DataFrame, levels: list[Any], force: tuple[float, float], ha: str, va: str
) -> bool:
    """Write the name of each point next to it; return False, without names, if there is no room for all."""
    to_data = axes.transData.inverted()
    texts = [
        axes.text(
            point["base"],
            point["new"],
            wrap(str(name)),
            fontsize=7,
            color=MUTED if point["published"] else INK,
            ha=ha,
            va=va,
        )
        for name, point in points.iterrows()
    ]
    for text in texts:  # legible where it crosses an arrow
        text.set(zorder=3, bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.2})
    marks = [_mark(axes, point) for _, point in points.iterrows()]
    taken = [*marks, *(text.get_window_extent() for text in levels)]
    leader = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.6, "shrinkB": 3}
    _, leaders = adjust_text(
        texts,
        objects=[box.transformed(to_data) for box in taken],
        ax=axes,
        force_text=force,
        force_static=force,
        expand=(1.15, 1.4),
        iter_lim=80,  # not a time, which would give another figure on a busy machine
        min_arrow_len=6,
        arrowprops=leader,
    )
    boxes = [text.get_window_extent() for text in texts]
    free = not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    if free and not any(box.overlaps(other) for box in boxes for other in taken):
        return True
    for part in (*texts, *leaders):
        part.remove()
    return False


def _mark(axes: Any, point: pd.Series) -> Bbox:
    """Return the box of a marker in pixels."""
    half = _MARK * axes.figure.dpi / 72
    x, y = axes.transData.transform((point["base"], point["new"]))
    return Bbox.from_extents(x - half, y - half, x + half, y + half)
