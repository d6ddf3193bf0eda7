"""The runs that a figure is drawn from: finished ones that the user names, or those of a plan, run first if needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from cocoamix.config.partition import LABEL
from cocoamix.errors import UserError, printable
from cocoamix.experiments.frame import Frame, read
from cocoamix.experiments.sections import by_shots
from cocoamix.io.paths import expand_home

if TYPE_CHECKING:
    from cocoamix.experiments.runs import Run

_FOR_PLANS = ("root", "datasets", "seeds", "partitions", "set", "run_output", "jobs")  # arguments


@dataclass(frozen=True)
class Choice:
    """A choice of the runs of a plan.

    Attributes:
        plan: The name of the plan.
        methods: The methods; all if empty.
        datasets: The datasets, unless the user chooses others; all if empty.
        seeds: The seeds, unless the user chooses others; all if empty.
    """

    plan: str
    methods: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plans:
    """The runs of a figure on the synthetic datasets, which need no data, and on real datasets below `--root`."""

    synthetic: Choice
    real: Choice


@dataclass(frozen=True)
class Source:
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
        for run in frame.left_out:
            print(printable(f"Left out: {run.folder}: {run.reason}."), file=sys.stderr)
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

    plan = read_plan(
        argparse.Namespace(
            plan=choice.plan,
            root=args.root,
            output=args.run_output,
            methods=list(choice.methods),
            datasets=args.datasets or list(choice.datasets),
            seeds=args.seeds or list(choice.seeds),
            partitions=getattr(args, "partitions", []),  # not all figures have the argument
            set=args.set,
        )
    )
    outcome = run_plan(plan, RunOptions(jobs=args.jobs))
    return Source(tuple(run.folder for run in outcome.runs), tuple(outcome.names), tuple(outcome.runs))


# ---------------------------------------------------------------------------------------- base to new


def base_to_new(frame: Frame) -> Iterator[Frame]:
    """Yield the runs on base and new classes for each number of shots; zero-shot runs are in each.

    Averages do not mix CoOp's halves of the classes with random ones. Several random halves are for the figure
    `assumption`.
    """
    runs = frame.runs[frame.runs["task"].eq("base2new") & frame.runs["subset"].isin(["base", "new"])]
    random = [draw for draw in runs["draw"].unique() if draw != LABEL]
    for draw in [LABEL, *(random if len(random) == 1 else [])]:
        own = runs.index[runs["draw"] == draw]
        yield from (part for part, _, _ in by_shots(frame.only(own)) if len(own))


def stems(stem: str) -> Iterator[str]:
    """Yield names for the files of several figures: stem, stem-2, and so on."""
    yield stem
    for number in count(2):
        yield f"{stem}-{number}"
