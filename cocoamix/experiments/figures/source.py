"""The runs that a figure is drawn from: finished ones that the user names, or those of a plan, run first if needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from cocoamix.config.partition import LABEL
from cocoamix.errors import UserError, printable
from cocoamix.experiments.checks import describe_caveats
from cocoamix.experiments.frame import Frame, read
from cocoamix.experiments.sections import by_shots
from cocoamix.io.paths import expand_home

from .style import Drawing

if TYPE_CHECKING:
    from cocoamix.experiments.runs import Run

_FOR_PLANS = ("root", "datasets", "seeds", "partitions", "set", "run_output", "jobs")  # arguments


class Choice(NamedTuple):
    """A plan, and some of its methods, datasets and seeds, or all. The user may choose other datasets and seeds."""

    plan: str
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


class Plans(NamedTuple):
    """The runs of a figure on the synthetic datasets, which need no data, and on real datasets below `--root`."""

    synthetic: Choice
    real: Choice


class Source(NamedTuple):
    """Where the runs of a figure are.

    Attributes:
        folders: Their folders, or folders above them.
        names: Names of methods: pairs of a pattern and a name.
        runs: The runs of a plan; empty if the user named folders.
    """

    folders: tuple[Path, ...]
    names: tuple[tuple[str, str], ...] = ()
    runs: tuple[Run, ...] = ()

    def frame(self) -> Frame:
        """Read the runs; print those that cannot be used to stderr."""
        frame = read(self.folders, self.names)
        left_out = [f"Left out: {run.folder}: {run.reason}." for run in frame.left_out]
        for line in filter(None, [*left_out, *frame.notes, describe_caveats(frame)]):
            print(printable(line), file=sys.stderr)
        return frame


def find_source(args: argparse.Namespace, plans: Plans) -> Source:
    """Return the runs that the arguments choose; missing runs of a plan are run first."""
    if not args.runs:
        return _run_plan(args, plans.real if args.root else plans.synthetic)
    for name in _FOR_PLANS:
        if getattr(args, name, None):
            raise UserError(f"--{name.replace('_', '-')} is for runs of a plan, not for --runs.")
    return Source(tuple(expand_home(folder) for folder in args.runs))


def find_trained(args: argparse.Namespace, plans: Plans) -> Source:
    """Return the trained models that the arguments choose. With `--runs`, `--root` is where the datasets are now."""
    if args.runs:
        return find_source(argparse.Namespace(**{**vars(args), "root": None}), plans)
    source = find_source(args, plans)
    runs = tuple(run for run in source.runs if run.subset == "base")
    return Source(tuple(run.folder for run in runs), source.names, runs)


def _run_plan(args: argparse.Namespace, choice: Choice) -> Source:
    """Run what is missing of a plan, and return all of its runs."""
    from cocoamix.experiments.bench import read_plan
    from cocoamix.experiments.runner import RunOptions, run_plan

    chosen = {"datasets": args.datasets or list(choice.datasets), "seeds": args.seeds or list(choice.seeds)}
    chosen |= {"plan": choice.plan, "methods": list(choice.methods), "output": args.run_output}
    plan = read_plan(argparse.Namespace(**{"partitions": [], **vars(args), **chosen}))
    outcome = run_plan(plan, RunOptions(jobs=args.jobs))
    return Source(tuple(run.folder for run in outcome.runs), tuple(outcome.names), tuple(outcome.runs))


def base_to_new(frame: Frame) -> Iterator[Frame]:
    """Yield the runs on base and new classes for each number of shots; zero-shot runs are in each.

    Averages do not mix CoOp's halves of the classes with random ones. Several random halves are for the figure
    `assumption`.
    """
    runs = frame.runs[frame.runs["task"].eq("base2new") & frame.runs["subset"].isin(["base", "new"])]
    if runs["draw"].nunique() > 1:
        runs = runs[runs["draw"] == LABEL]
    if len(runs):
        yield from (part for part, _, _ in by_shots(frame.only(runs.index)))


def drawings(
    stem: str,
    title: str,
    tables: Iterable[pd.DataFrame],
    describe: Callable[[pd.DataFrame], str],
    draw: Callable[..., Figure],
) -> Iterator[Drawing]:
    """Yield a figure for each table with rows, whose attribute `title`, if any, is the start of its title."""
    filled = [table for table in tables if len(table)]
    if not filled:
        raise UserError(
            "The runs do not have what the figure compares: base and new accuracy (DATASET.SUBSAMPLE_CLASSES base and "
            "new), of two methods, and for `parameters`, the number of parameters, which results.json holds and logs "
            "do not. Several random halves of the classes are for `cocoamix figures assumption`."
        )
    for name, table in zip(stems(stem), filled, strict=False):
        whole = ": ".join([*table.attrs.values(), title])
        yield Drawing(name, whole, describe(table), partial(draw, table, title=whole), table.reset_index())


def stems(stem: str) -> Iterator[str]:
    """Yield names for the files of several figures: stem, stem-2, and so on."""
    yield stem
    yield from (f"{stem}-{number}" for number in count(2))
