"""`sessions`: accuracy after each session of class-incremental learning. The report draws curves over shots, too."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pandas as pd

from .. import pivots
from ..frame import Frame
from ..names import sort_datasets, sort_methods
from ..published import match
from ..sections import average_title, kinds_of_sessions
from . import source
from .charts import draw_lines, name_published
from .style import Drawing

_PLANS = source.Plans(
    [source.Choice("quick_fscil", datasets=("warm_cool",), seeds=(1,))],
    [source.Choice("fscil")],
)
_PANELS = {"accuracy": "all classes so far", "base": "base classes", "novel": "novel classes"}  # by metric
_COLUMNS = ["method", "published", "x", "mean", "std", "by_seed"]


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Yield a figure of the average over datasets, or of each dataset if there is no average."""
    frame = source.find_frame(args, _PLANS).where(task="fscil")
    for title, own in _groups(frame):
        panels = session_panels(own, match(own).rows if args.paper else pd.DataFrame())
        yield source.captioned(draw_curves("sessions", panels, title, "session"), own)


def _groups(frame: Frame) -> Iterator[tuple[str, Frame]]:
    """Yield titles and runs: all datasets if they can be averaged, else each dataset under each kind of sessions."""
    datasets = sort_datasets(frame.runs["dataset"])
    parts = [part for name in datasets for part in kinds_of_sessions(frame.where(dataset=name)).items()]
    alike = len({part.values["session"].max() for _, part in parts}) == 1
    if len(parts) == len(datasets) > 1 and alike and len(curves(pivots.sessions(frame.values), datasets)):
        yield average_title(datasets), frame
    else:
        yield from parts


def session_panels(frame: Frame, published: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the curves over sessions on all, base and novel classes, averaged over the datasets of the runs.

    Args:
        frame: Runs of class-incremental learning.
        published: Published numbers to show beside them, as in `published.Matches.rows`.
    """
    datasets = sort_datasets(frame.runs["dataset"])
    order = sort_methods(dict(zip(frame.runs["method"], frame.runs["trainer"], strict=True)))
    panels = {name: curves(pivots.sessions(frame.values, metric), datasets) for metric, name in _PANELS.items()}
    panels = {
        name: lines.sort_values("method", key=lambda names: names.map(order.index), kind="stable")
        for name, lines in panels.items()
        if len(lines)
    }
    if len(published) and len(datasets) == 1:
        printed = name_published(published[published["session"].notna() & published["dataset"].eq(datasets[0])])
        lines = printed.rename(columns={"session": "x", "value": "mean", "place": "published"})
        first = _PANELS["accuracy"]
        panels[first] = pd.concat([panels[first], lines.reindex(columns=_COLUMNS)], ignore_index=True)
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
    if len(wide):
        average, seeds = pivots.over_datasets(wide, datasets), pivots.by_seed(wide, datasets)
        for method, means in average["mean"].iterrows():
            for x, mean in means.dropna().items():
                std = average.loc[method, ("std", x)]
                by_seed = () if pd.isna(std) else tuple(seeds.xs(method, level="method")[x].dropna())
                rows.append((method, "", x, mean, std, by_seed))
    return pd.DataFrame(rows, columns=_COLUMNS)


def draw_curves(stem: str, panels: Mapping[str, pd.DataFrame], title: str, x_label: str) -> Drawing:
    """Return the figure of curves, by the titles of their panels. It is described by both ends of the first ones."""
    name, whole = next(iter(panels.items()))
    groups = whole.groupby("method", sort=False)["mean"]
    ends = [f"{method} from {own.iloc[0]:.1f} to {own.iloc[-1]:.1f}" for method, own in groups]
    sentence = f"{title}: accuracy in percent on {name}, to {x_label} {whole['x'].max()}: {'; '.join(ends)}."
    data = pd.concat(panels, names=["panel"]).reset_index("panel").rename(columns={"x": x_label})
    return Drawing(stem, title, sentence, partial(draw_lines, panels, title=title, x_label=x_label), data)
