"""The runs that a figure is drawn from: those that the user names, or those of a plan; and what can be compared."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from cocoamix.errors import UserError, printable, some_of
from cocoamix.io.paths import expand_home

from ..checks import describe_caveats
from ..frame import Frame, read
from ..labels import not_comparable, show
from ..names import sort_methods
from .style import Drawing

if TYPE_CHECKING:
    from ..runs import Run

Names = tuple[tuple[str, str], ...]


class Choice(NamedTuple):
    """A plan, and some of its methods, datasets and seeds, or all. The user may choose other datasets and seeds."""

    plan: str
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


class Plans(NamedTuple):
    """The plans of a figure on the synthetic datasets, which need no data, and on real datasets below `--root`."""

    synthetic: Sequence[Choice]
    real: Sequence[Choice]


def find_frame(args: argparse.Namespace, plans: Plans, moved: bool = False) -> Frame:
    """Read the runs that the arguments choose; print those that cannot be used to stderr.

    Args:
        args: The arguments of the command.
        plans: The plans to run if the arguments name no runs.
        moved: Whether `--root` may name the place where the datasets of `--runs` are now.
    """
    names: list[tuple[str, str]] = []
    folders = [expand_home(folder) for folder in args.runs or ()]
    for name in ("datasets", "seeds", "set", "jobs", *(() if moved else ("root",))):
        if folders and getattr(args, name):
            raise UserError(f"--{name} is for runs of a plan, not for --runs.")
    for choice in () if folders else plans.real if args.root else plans.synthetic:
        runs, own = _run_plan(args, choice)
        folders += [run.folder for run in runs]
        names += own
    frame = read(folders, names)
    for line in (*(f"Left out: {run.folder}: {run.reason}." for run in frame.left_out), *frame.notes):
        print(printable(line), file=sys.stderr)
    return frame


def find_trained(args: argparse.Namespace, plans: Plans) -> tuple[Frame, list[Path]]:
    """Return the runs that the arguments choose, and the folders of their models, to load."""
    frame = find_frame(args, plans, moved=True)
    if args.runs:
        return frame, [expand_home(folder) for folder in dict.fromkeys(args.runs)]
    order = sort_methods(dict(zip(frame.runs["method"], frame.runs["trainer"], strict=True)))
    base = frame.runs[frame.runs["subset"] == "base"]
    base = base.sort_values("method", key=lambda names: names.map(order.index), kind="stable")
    return frame, [Path(folder) for folder in base["folder"]]


def _run_plan(args: argparse.Namespace, choice: Choice) -> tuple[list[Run], Names]:
    """Run what is missing of a plan; return all of its runs, and the names of their methods."""
    from ..bench import read_plan
    from ..runner import RunOptions, run_plan

    chosen = {"datasets": args.datasets or list(choice.datasets), "seeds": args.seeds or list(choice.seeds)}
    chosen |= {"plan": choice.plan, "methods": list(choice.methods), "partitions": [], "output": None}
    outcome = run_plan(read_plan(argparse.Namespace(**{**vars(args), **chosen})), RunOptions(jobs=args.jobs))
    return list(outcome.runs), tuple(outcome.names)


# ---------------------------------------------------------------------------------------- what can be compared


def unlike(runs: pd.DataFrame) -> list[str]:
    """Describe which methods were evaluated on other images, or with another model, than the first on a dataset."""
    pairs: dict[tuple[str, str], str] = {}
    for _, cell in runs.groupby(["dataset", "subset", "draw"], sort=False):
        first, *others = cell.itertuples()
        for other in others:
            for key, value, second in not_comparable(first, other)[:1]:
                where = f"{show(value)} in {first.folder} and {show(second)} in {other.folder}"
                pairs.setdefault((first.method, other.method), f"{key} is {where}")
    return [f"{first} and {other} cannot be compared: {why}." for (first, other), why in pairs.items()]


def captioned(drawing: Drawing, frame: Frame, runs: pd.DataFrame | None = None) -> Drawing:
    """Return a drawing whose sentence has the caveats of its runs, and says which of them cannot be compared."""
    own = frame if runs is None else replace(frame, runs=runs)
    parts = drawing.sentence, describe_caveats(own), some_of(unlike(own.runs))
    return replace(drawing, sentence=" ".join(filter(None, parts)))


def check_alike(runs: pd.DataFrame, varied: Sequence[str] | None = None) -> None:
    """Refuse runs that differ in model, images or shots or, if the figure varies some settings, in others."""
    for text in unlike(runs):
        raise UserError(f"{text} Give the folders of one protocol.")
    rows = [{"shots": run.shots, **({} if varied is None else run.settings)} for run in runs.itertuples()]
    facts = pd.DataFrame(rows).drop(columns=list(varied or ()), errors="ignore").astype(object).fillna("not stated")
    for key, values in facts.astype(str).items():
        if values.nunique() > 1 and not str(key).startswith("DATASET."):
            listed = " and ".join(values.unique()[:3])
            raise UserError(f"The runs differ in {key}: {listed}. Give the folders of runs that agree in it.")


def complete(runs: pd.DataFrame, points: list[str], across: list[str]) -> pd.DataFrame:
    """Return the rows of the points that have an accuracy across all values of other columns, so that means agree."""
    shared = runs.pivot(index=points, columns=across, values="accuracy").dropna().index
    if shared.empty:
        what = f"No {' and '.join(points)} has results for every {' and '.join(across)}"
        raise UserError(f"{what}. Run what is missing, or leave out the runs that have too few.")
    return runs[runs.set_index(points).index.isin(shared)]
