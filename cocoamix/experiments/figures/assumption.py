"""`assumption`: is a learned prompt better on the classes it was trained on, and the hand-crafted one on all others?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from cocoamix.config.partition import LABEL, number_of
from cocoamix.errors import UserError, some_of
from cocoamix.experiments.names import is_clip, is_zero_shot, simplify, sort_datasets
from cocoamix.experiments.stats import one_sided_t_test

from . import source
from .kinds import check_images
from .source import Choice, Plans, Source
from .style import INK, MUTED, Drawing, Style, look, name_series, wrap

_TITLE = "The learned and the hand-crafted prompt on in-classes and on out-classes"
# Random halves as in the paper; without real data, those of the first synthetic dataset.
_PLANS = Plans(Choice("quick_assumption", (), ("colour_shape",), (1,)), Choice("assumption"))
# The halves of a synthetic dataset by label have different themes; its random halves do not.
_THEMED = Plans(Choice("quick", ("CLIP", "CoOp")), Choice("assumption"))
_SIDES = {"base": "in", "new": "out"}
_PAIR = ["dataset", "partition", "seed"]
_COLUMNS = ["in_learned", "in_hand_crafted", "out_learned", "out_hand_crafted"]

Names = tuple[str, str]  # of the learned and of the hand-crafted method


def make(args: argparse.Namespace) -> Iterable[Drawing]:
    """Collect the pairs, test them, and return the figure."""
    sources = [source.find_source(args, _PLANS)]
    if not args.runs and not args.root:
        sources.append(source.find_source(argparse.Namespace(**{**vars(args), "partitions": []}), _THEMED))
    tables = [read_pairs(runs, args.learned, args.hand_crafted) for runs in sources]
    pairs, names = group_pairs(pd.concat([table for _, table in tables], ignore_index=True)), tables[0][0]
    sentence = "\n".join(_describe(name, own, names) for name, own in pairs.groupby("group", sort=False))
    return [Drawing("assumption", _TITLE, sentence, partial(draw, pairs, names), pairs)]


def read_pairs(runs: Source, learned: str = "", hand_crafted: str = "") -> tuple[Names, pd.DataFrame]:
    """Return the accuracies of both prompts on both halves, a row for each dataset, partition and seed.

    Args:
        runs: Where the runs are.
        learned: The name of the trained method; "" for the only one.
        hand_crafted: The name of the zero-shot method; "" for CLIP.
    """
    halves = runs.frame().runs
    halves = halves[halves["task"].eq("base2new") & halves["subset"].isin(list(_SIDES))]
    halves = halves.assign(partition=halves["draw"], seed=halves["seed"].fillna(-1), side=halves["subset"].map(_SIDES))
    halves["accuracy"] = [metrics["accuracy"] for metrics in halves["metrics"]]
    zero_shot, clip = (halves["trainer"].map(test).astype(bool) for test in (is_zero_shot, is_clip))
    ours = _choose(halves[~zero_shot], learned, "--learned", "trained")
    theirs = _choose(halves[zero_shot if hand_crafted else clip], hand_crafted, "--hand-crafted", "zero-shot")
    for _, own in pd.concat([ours, theirs]).groupby("draw"):
        check_images(own)
    if ours["shots"].nunique() > 1:
        raise UserError(
            f"The runs have {some_of(map(str, ours['shots'].unique()))} shots. Name folders with one number."
        )
    learned_side = ours.pivot(index=_PAIR, columns="side", values="accuracy").add_suffix("_learned")
    # Results without training do not depend on the seed.
    fixed = theirs.drop_duplicates([*_PAIR[:2], "side"])
    fixed_side = fixed.pivot(index=_PAIR[:2], columns="side", values="accuracy").add_suffix("_hand_crafted")
    pairs = learned_side.join(fixed_side).reindex(columns=_COLUMNS)
    for place in pairs.index[pairs.isna().any(axis=1)]:
        print(f"Left out: {' '.join(map(str, place))}, of which a result on a half is missing.", file=sys.stderr)
    names = ours["method"].iloc[0], theirs["method"].iloc[0]
    return names, pairs.dropna().reset_index().replace({"seed": {-1: pd.NA}})


def _choose(runs: pd.DataFrame, name: str, flag: str, what: str) -> pd.DataFrame:
    """Return the runs of the method with a name, or of the only one without a name."""
    alike = [simplify(name) in ("", simplify(run.method), simplify(run.trainer)) for run in runs.itertuples()]
    exact = runs["method"].eq(name)
    chosen = runs[exact if exact.any() else alike]
    if chosen["method"].nunique() == 1:
        return chosen
    several = some_of(runs["method"].unique()) or "none"
    raise UserError(
        f"The figure compares two methods on both halves of the classes. {flag} names one {what}: {several}."
    )


def group_pairs(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs with differences and groups: the random halves of each dataset, and all halves by label."""
    order, numbers = sort_datasets(pairs["dataset"]), pairs["partition"].map(number_of)
    groups = ("random halves of " + pairs["dataset"]).where(pairs["partition"] != LABEL, "halves by label")
    keys = pairs.assign(group=groups, by_label=numbers.isna(), place=pairs["dataset"].map(order.index), number=numbers)
    keys = keys.sort_values(["by_label", "place", "number", "seed"], na_position="first")
    grouped = keys[keys["group"].duplicated(keep=False)][["group", *_PAIR, *_COLUMNS]].reset_index(drop=True)
    if grouped.empty:
        raise UserError(
            "A paired test needs two pairs. Add other partitions, DATASET.PARTITION random:K, or other seeds."
        )
    inside, outside = grouped["in_learned"], grouped["out_learned"]
    return grouped.assign(
        in_difference=inside - grouped["in_hand_crafted"], out_difference=grouped["out_hand_crafted"] - outside
    )


def _describe(group: str, own: pd.DataFrame, names: Names) -> str:
    """Describe the tests of a group, of all pairs and of the means of seeds, which share classes and test images."""
    means = own.groupby(_PAIR[:2], sort=False)[["in_difference", "out_difference"]].mean()
    parts = []
    for side, (better, worse) in (("in", names), ("out", names[::-1])):
        column = f"{side}_difference"
        p = one_sided_t_test(own[column])[1]
        of_means = (
            f", {one_sided_t_test(means[column])[1]:.2g} over {len(means)} means of seeds" if len(means) > 1 else ""
        )
        difference = f"{better} minus {worse} is {own[column].mean():+.2f} points on average"
        parts.append(f"on {side}-classes {difference} (p = {p:.2g}{of_means})")
    return f"{group.capitalize()}, {len(own)} pairs, one-sided paired t-tests: {'; '.join(parts)}."


def draw(pairs: pd.DataFrame, names: Names, style: Style) -> Figure:
    """Draw box plots of the differences on in-classes and on out-classes, a box for each group of pairs."""
    groups = list(pairs.groupby("group", sort=False))
    figure, panels = style.panels(2, 0.75 + 0.55 * len(groups), _TITLE, sharex=True)
    for axes, side, (better, worse) in zip(panels, ("in", "out"), (names, names[::-1]), strict=True):
        labels = []
        for place, (group, own) in enumerate(groups):
            values = own[f"{side}_difference"]
            _draw_box(axes, place, values, look(place).colour)
            labels.append(f"{wrap(group)}\np = {one_sided_t_test(values)[1]:.2g}, n = {len(values)}")
        axes.axvline(0, color=MUTED, linewidth=0.9, zorder=1)
        axes.set(title=f"{side}-classes: {better} − {worse}", xlabel="difference of accuracies in points")  # noqa: RUF001
        axes.set_yticks(range(len(groups)), labels)
        axes.tick_params(axis="y", labelcolor=INK)
        axes.tick_params(axis="x", labelbottom=True)
        axes.set_ylim(len(groups) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
    name_series(figure, panels)
    return figure


def _draw_box(axes: Any, place: int, values: pd.Series, colour: str) -> None:
    """Draw quartiles and extremes as a box, every pair as a dot, and the mean as a diamond."""
    line = {"color": colour, "linewidth": 1.1}
    parts = dict.fromkeys(("boxprops", "whiskerprops", "medianprops"), line)
    options = {"orientation": "horizontal", "widths": 0.5, "whis": (0, 100), "showcaps": False, "manage_ticks": False}
    axes.boxplot([values], positions=[place], **options, **parts)
    shift = [place + 0.13 * (number % 3 - 1) for number in range(len(values))]  # so that equal values stay visible
    axes.plot(sorted(values), shift, ".", color=colour, alpha=0.65, markersize=4, label="a pair")
    axes.plot(values.mean(), place, "D", color=INK, markersize=3.5, zorder=4, label="mean (box: quartiles, median)")
