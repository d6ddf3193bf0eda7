"""`assumption`: is a learned prompt better on the classes it was trained on, and the hand-crafted one on all others?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial

import pandas as pd

from cocoamix.config.partition import LABEL, number_of
from cocoamix.errors import UserError, some_of

from ..frame import Frame
from ..names import is_clip, is_zero_shot, sort_datasets
from ..stats import one_sided_t_test
from . import source
from .charts import draw_rows
from .source import Choice, Plans
from .style import Drawing

_TITLE = "The learned and the hand-crafted prompt on in-classes and on out-classes"
# Random halves, as in the paper, of one synthetic dataset. Its halves have no themes; halves by label have.
_PLANS = Plans(
    [Choice("quick_assumption", datasets=("colour_shape",), seeds=(1,)), Choice("quick", ("CLIP", "CoOp"))],
    [Choice("assumption")],
)
_SIDES = {"base": "in", "new": "out"}
_PAIR = ["dataset", "partition", "seed"]
_COLUMNS = ["in_learned", "in_hand_crafted", "out_learned", "out_hand_crafted"]

Names = tuple[str, str]  # of the learned and of the hand-crafted method


def make(args: argparse.Namespace) -> Iterator[Drawing]:
    """Collect the pairs, test them, and yield the figure."""
    frame = source.find_frame(args, _PLANS)
    names, pairs = read_pairs(frame)
    pairs = group_pairs(pairs)
    sentence = "\n".join(_describe(str(group), own, names) for group, own in pairs.groupby("group", sort=False))
    sides = {f"{side}_difference": f"{side}-classes: {' - '.join(pair)}" for side, pair in _sides(names)}
    rows = pairs.melt("group", list(sides), "series").replace({"series": sides}).rename(columns={"group": "row"})
    words = "difference of accuracies in points"
    drawn = partial(
        draw_rows, rows, title=_TITLE, x_label=words, note=lambda own: f"p = {one_sided_t_test(own)[1]:.2g}"
    )
    yield source.captioned(Drawing("assumption", _TITLE, sentence, drawn, pairs), frame)


def _sides(names: Names) -> list[tuple[str, Names]]:
    """Return the better and the worse method on each side, if the assumption holds."""
    return [("in", names), ("out", (names[1], names[0]))]


def read_pairs(frame: Frame) -> tuple[Names, pd.DataFrame]:
    """Return the accuracies of both prompts on both halves, a row for each dataset, partition and seed."""
    halves = frame.runs[frame.runs["task"].eq("base2new") & frame.runs["subset"].isin(list(_SIDES))]
    accuracies = [metrics["accuracy"] for metrics in halves["metrics"]]
    halves = halves.assign(partition=halves["draw"], seed=halves["seed"].fillna(-1), accuracy=accuracies)
    halves["side"] = halves["subset"].map(_SIDES)
    ours = halves[[not is_zero_shot(trainer) for trainer in halves["trainer"]]]
    theirs = halves[[is_clip(trainer) for trainer in halves["trainer"]]]
    for what, runs in (("trained method", ours), ("zero-shot CLIP", theirs)):
        if runs["method"].nunique() != 1:
            listed = some_of(runs["method"].unique()) or "none"
            raise UserError(f"The figure needs one {what} on both halves of the classes; the runs have {listed}.")
    source.check_alike(pd.concat([ours, theirs.assign(shots=ours["shots"].iloc[0])]))
    learned = ours.pivot(index=_PAIR, columns="side", values="accuracy").add_suffix("_learned")
    # Results without training do not depend on the seed.
    fixed = theirs.drop_duplicates([*_PAIR[:2], "side"])
    pairs = learned.join(fixed.pivot(index=_PAIR[:2], columns="side", values="accuracy").add_suffix("_hand_crafted"))
    pairs = pairs.reindex(columns=_COLUMNS)
    for place in pairs.index[pairs.isna().any(axis=1)]:
        print(f"Left out: {' '.join(map(str, place))}, of which a result on a half is missing.", file=sys.stderr)
    names = ours["method"].iloc[0], theirs["method"].iloc[0]
    return names, pairs.dropna().reset_index().replace({"seed": {-1: pd.NA}})


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
    gains = grouped["in_learned"] - grouped["in_hand_crafted"], grouped["out_hand_crafted"] - grouped["out_learned"]
    return grouped.assign(in_difference=gains[0], out_difference=gains[1])


def _describe(group: str, own: pd.DataFrame, names: Names) -> str:
    """Describe the tests of a group, of all pairs and of the means of seeds, which share classes and test images."""
    means = own.groupby(_PAIR[:2], sort=False)[["in_difference", "out_difference"]].mean()
    parts = []
    for side, (better, worse) in _sides(names):
        column = f"{side}_difference"
        tests = f"p = {one_sided_t_test(own[column])[1]:.2g}"
        if len(means) > 1:
            tests += f", {one_sided_t_test(means[column])[1]:.2g} over {len(means)} means of seeds"
        difference = f"{better} minus {worse} is {own[column].mean():+.2f} points on average"
        parts.append(f"on {side}-classes {difference} ({tests})")
    return f"{group[0].upper()}{group[1:]}, {len(own)} pairs, one-sided paired t-tests: {'; '.join(parts)}."
