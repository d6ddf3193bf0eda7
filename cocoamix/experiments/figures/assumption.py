"""`assumption`: is a learned prompt better on the classes it was trained on, and the hand-crafted one on all others?"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cocoamix.config.partition import LABEL, number_of
from cocoamix.errors import UserError, nearest, some_of
from cocoamix.experiments.frame import Frame
from cocoamix.experiments.names import is_clip, is_zero_shot, simplify, sort_datasets
from cocoamix.experiments.stats import one_sided_t_test

from . import source
from .kinds import check_images
from .source import Choice, Plans, Source
from .style import INK, MUTED, Drawing, Style, add_legend, look

_TITLE = "The learned and the hand-crafted prompt on in-classes and on out-classes"
# Random halves as in the paper; without real data, those of the first synthetic dataset.
_PLANS = Plans(Choice("quick_assumption", (), ("colour_shape",), (1,)), Choice("assumption"))
# The halves of a synthetic dataset by label have different themes; its random halves do not.
_THEMED = Plans(Choice("quick", ("CLIP", "CoOp")), Choice("assumption"))
_LEVEL = 0.05  # of the tests
_SIDES = ("in_learned", "in_hand_crafted", "out_learned", "out_hand_crafted")
_HALVES = {"base": "in", "new": "out"}
_SPREAD = 0.13  # by which dots are moved from the middle of a box


class Names(NamedTuple):
    """The names of the two methods."""

    learned: str
    hand_crafted: str


def make(args: argparse.Namespace) -> Iterable[Drawing]:
    """Collect the pairs, test them, and return the figure."""
    sources = [source.find_source(args, _PLANS)]
    if not args.runs and not args.root:
        sources.append(source.find_source(argparse.Namespace(**{**vars(args), "partitions": []}), _THEMED))
    tables = [read_pairs(found, args.learned, args.hand_crafted) for found in sources]
    names = tables[0][0]
    pairs = group_pairs(pd.concat([table for _, table in tables], ignore_index=True))
    tested = pairs[pairs.groupby("group")["seed"].transform("size") > 1]
    single = [
        f"There is only one pair for {name}, which is left out: a paired test needs two."
        for name in pairs["group"].unique()
        if name not in set(tested["group"])
    ]
    sentence = "\n".join([*(_describe(name, own, names) for name, own in tested.groupby("group", sort=False)), *single])
    return [Drawing("assumption", _TITLE, sentence, partial(draw, tested, names), tested)]


# ---------------------------------------------------------------------------------------- pairs


def read_pairs(runs: Source, learned: str = "", hand_crafted: str = "") -> tuple[Names, pd.DataFrame]:
    """Return the accuracies of both prompts on both halves, a row for each dataset, partition and seed.

    Args:
        runs: Where the runs are.
        learned: The name of the trained method; "" for the only one.
        hand_crafted: The name of the zero-shot method; "" for CLIP.
    """
    frame = runs.frame()
    halves = frame.runs[frame.runs["task"].eq("base2new") & frame.runs["subset"].isin(list(_HALVES))]
    halves = halves.assign(seed=halves["seed"].fillna(-1), accuracy=[run["accuracy"] for run in halves["metrics"]])
    zero_shot = halves["trainer"].map(is_zero_shot).astype(bool)
    ours = _choose(halves[~zero_shot], learned, "--learned", "trained")
    clip = halves["trainer"].map(is_clip).astype(bool)  # with one template, which others extend
    fixed = halves[clip] if clip.any() and not hand_crafted else halves[zero_shot]
    theirs = _choose(fixed, hand_crafted, "--hand-crafted", "zero-shot")
    names = Names(ours["method"].iloc[0], theirs["method"].iloc[0])
    if ours["shots"].nunique() > 1:
        listed = " and ".join(map(str, sorted(ours["shots"].unique())))
        raise UserError(f"The runs of {names.learned} are of {listed} shots. Name folders with one number of shots.")
    for _, own in pd.concat([ours, theirs]).groupby("draw"):
        check_images(own)
    return names, _join(ours, theirs, names, frame)


def _choose(runs: pd.DataFrame, name: str, flag: str, what: str) -> pd.DataFrame:
    """Return the runs of the method with a name, or of the only one without a name."""
    if runs.empty:
        raise UserError(
            f"There is no {what} run on base or new classes. The figure compares a trained method with zero-shot CLIP "
            "on both halves, DATASET.SUBSAMPLE_CLASSES base and new."
        )
    alike = [simplify(name) in (simplify(run.method), simplify(run.trainer)) for run in runs.itertuples()]
    exact = runs["method"].eq(name)
    chosen = runs[exact if exact.any() else alike] if name else runs
    labels = list(runs["method"].unique())
    if chosen.empty:
        meant = nearest(name, labels)
        raise UserError(f"{flag} {name}: no {what} method has that name.{meant} There are: {some_of(labels)}.")
    if chosen["method"].nunique() > 1:
        several = some_of(chosen["method"].unique())
        raise UserError(f"There are several {what} methods: {several}. Choose one with {flag}, or name fewer folders.")
    return chosen


def _join(ours: pd.DataFrame, theirs: pd.DataFrame, names: Names, frame: Frame) -> pd.DataFrame:
    """Return the pairs of both methods; refuse runs without a counterpart."""
    place, seed = ["dataset", "draw"], ["dataset", "draw", "seed"]
    wanted = pd.concat([ours, theirs])[place].drop_duplicates().merge(ours[seed].drop_duplicates(), how="left")
    wanted = wanted.merge(pd.DataFrame({"subset": list(_HALVES)}), how="cross")
    fixed = theirs.drop_duplicates([*place, "subset"])  # results without training do not depend on the seed
    learned = ours[[*seed, "subset", "accuracy"]].rename(columns={"accuracy": "learned"})
    both = wanted.merge(learned, how="left").merge(
        fixed[[*place, "subset", "accuracy"]].rename(columns={"accuracy": "hand_crafted"}), how="left"
    )
    for row in both[both[["learned", "hand_crafted"]].isna().any(axis=1)].itertuples():
        name = names.learned if pd.isna(row.learned) else names.hand_crafted
        of_seed = f" with seed {row.seed}" if pd.isna(row.learned) and not pd.isna(row.seed) else ""
        problem = "".join(f" {run.folder}: {run.reason}." for run in frame.left_out[:1])
        raise UserError(
            f"{name} has no result on the {row.subset} classes of {_where(row.dataset, row.draw)}{of_seed}. Run it, or "
            f"name folders without these halves.{problem}"
        )
    wide = both.pivot(index=seed, columns="subset", values=["learned", "hand_crafted"])
    wide.columns = pd.Index([f"{_HALVES[half]}_{prompt}" for prompt, half in wide.columns])
    return (
        wide.reset_index()
        .rename(columns={"draw": "partition"})
        .assign(seed=lambda pairs: pairs["seed"].replace(-1, pd.NA))
    )


def _where(dataset: str, partition: str) -> str:
    return dataset if partition == LABEL else f"{dataset} under {partition}"


# ---------------------------------------------------------------------------------------- groups and tests


def group_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs with differences and groups: the random halves of each dataset, or all halves by label.

    The order does not depend on folders: random halves come first, then the order is by dataset and number.
    """
    order = {name: place for place, name in enumerate(sort_datasets(pairs["dataset"]))}
    numbers = [number_of(partition) for partition in pairs["partition"]]
    by_label = [number is None for number in numbers]
    names = [
        "halves by label" if own else f"random halves of {name}"
        for own, name in zip(by_label, pairs["dataset"], strict=True)
    ]
    keys = pairs.assign(group=names, by_label=by_label, number=numbers, place=pairs["dataset"].map(order))
    sorted_pairs = keys.sort_values(["by_label", "place", "number", "seed"], na_position="first")
    grouped = sorted_pairs[["group", "dataset", "partition", "seed", *_SIDES]].reset_index(drop=True)
    grouped["in_difference"] = grouped["in_learned"] - grouped["in_hand_crafted"]
    grouped["out_difference"] = grouped["out_hand_crafted"] - grouped["out_learned"]
    if grouped["group"].duplicated().any():
        return grouped
    raise UserError(
        f"There is only one pair for {' and for '.join(grouped['group'])}, and a paired test needs two. Add runs of "
        "other partitions, DATASET.PARTITION random:K, or of other seeds."
    )


def _describe(group: str, own: pd.DataFrame, names: Names) -> str:
    """Describe the tests of a group."""
    inside, outside = (one_sided_t_test(own[f"{side}_difference"])[1] for side in ("in", "out"))
    holds = ["holds" if p < _LEVEL else "does not hold" for p in (inside, outside)]
    verdict = f"At {_LEVEL} the inequality on in-classes {holds[0]}, and the one on out-classes {holds[1]}."
    # Seeds of one half share classes and test images, so they are not independent.
    means = own.groupby(["dataset", "partition"], sort=False)[["in_difference", "out_difference"]].mean()
    if 1 < len(means) < len(own):
        tests = [f"{one_sided_t_test(means[column])[1]:.2g}" for column in means]
        verdict += f" Over the means of seeds, {len(means)} pairs: p = {tests[0]} and {tests[1]}."
    return (
        f"{group[0].upper()}{group[1:]}, {len(own)} pairs: on in-classes {names.learned} minus {names.hand_crafted} is "
        f"{own['in_difference'].mean():+.2f} points on average (one-sided paired t-test, p = {inside:.2g}), on "
        f"out-classes {names.hand_crafted} minus {names.learned} is {own['out_difference'].mean():+.2f} "
        f"(p = {outside:.2g}). {verdict}"
    )


# ---------------------------------------------------------------------------------------- drawing


def draw(pairs: pd.DataFrame, names: Names, style: Style) -> Figure:
    """Draw box plots of the differences on in-classes and on out-classes, a box for each group of pairs."""
    groups = list(pairs.groupby("group", sort=False))
    figure, panels = style.panels(2, 0.75 + 0.55 * len(groups), _TITLE, sharex=True)
    for axes, side, (better, worse) in zip(panels, ("in", "out"), (names, names[::-1]), strict=True):
        labels = []
        for place, (group, own) in enumerate(groups):
            values = own[f"{side}_difference"]
            _draw_box(axes, place, values, look(place).colour)
            test = f"p = {one_sided_t_test(values)[1]:.2g}, n = {len(values)}"
            labels.append("\n".join([*textwrap.wrap(group, 18), test]))
        axes.axvline(0, color=MUTED, linewidth=0.9, zorder=1)
        axes.set_title(f"{side}-classes: {better} − {worse}")  # noqa: RUF001  (a minus)
        axes.set_yticks(range(len(groups)), labels)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.tick_params(axis="x", labelbottom=True)
        axes.set_ylim(len(groups) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("difference of accuracies in points")
    _add_legend(figure)
    return figure


def _draw_box(axes: Any, place: int, values: pd.Series, colour: str) -> None:
    """Draw quartiles and extremes as a box, every pair as a dot, and the mean as a diamond."""
    line = {"color": colour, "linewidth": 1.1}
    axes.boxplot(
        [values],
        positions=[place],
        orientation="horizontal",
        widths=0.5,
        whis=(0, 100),
        showcaps=False,
        boxprops=line,
        whiskerprops=line,
        medianprops={**line, "linewidth": 1.8},
        manage_ticks=False,
    )
    shift = [place + _SPREAD * (number % 3 - 1) for number in range(len(values))]  # so that equal values stay visible
    axes.plot(sorted(values), shift, ".", color=colour, alpha=0.65, markersize=4)
    axes.plot(values.mean(), place, "D", color=INK, markersize=3.5, zorder=4)


def _add_legend(figure: Figure) -> None:
    handles = {
        "a pair": Line2D([], [], marker=".", linestyle="", color=MUTED),
        "mean": Line2D([], [], marker="D", linestyle="", color=INK, markersize=3.5),
        "quartiles and median; lines to the extremes": Patch(fill=False, edgecolor=MUTED, linewidth=1.1),
    }
    add_legend(figure, list(handles.values()), list(handles))
