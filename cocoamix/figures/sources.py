"""The runs that a figure is drawn from: finished ones that the user names, or those of a plan, run first if needed."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cocoamix.errors import UserError
from cocoamix.io.paths import expand_home

if TYPE_CHECKING:
    from cocoamix.bench.benchmark import CheckedPlan
    from cocoamix.bench.plan import Plan
    from cocoamix.bench.runs import Run
    from cocoamix.report.build import Report

# Seconds of a run with the tiny CLIP on one core, for an estimate before any run has finished.
_TRAINING, _EVALUATION = 8.0, 2.0


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
        names: Names of methods in the report: pairs of a pattern and a name.
        runs: The runs of a plan; empty if the user gave folders.
    """

    folders: tuple[Path, ...]
    names: tuple[tuple[str, str], ...] = ()
    runs: tuple[Run, ...] = ()


def add_arguments(
    parser: argparse.ArgumentParser, plans: Plans, runs: str = "output folders of finished runs, or folders above them"
) -> None:
    """Add the arguments that choose the runs.

    Args:
        parser: The parser of the figure.
        plans: The runs of the figure.
        runs: The help of `--runs`.
    """
    parser.add_argument("--runs", nargs="+", metavar="DIR", help=runs)
    parser.add_argument("--root", help=f"folder of real datasets; the plan {plans.real.plan} is run on them first")
    parser.add_argument("--datasets", nargs="+", default=[], metavar="NAME", help="only these datasets of the plan")
    parser.add_argument("--seeds", nargs="+", default=[], type=int, metavar="SEED", help="only these seeds of the plan")
    parser.add_argument("--run-output", metavar="FOLDER", help="folder for the runs (default: the plan's)")
    pair = ("KEY", "VALUE")
    parser.add_argument("--set", nargs=2, action="append", default=[], metavar=pair, help="override a key in all runs")
    parser.add_argument(
        "-j", "--jobs", type=int, metavar="N", help="number of parallel runs (default: one per GPU, or core)"
    )


def find_source(args: argparse.Namespace, plans: Plans) -> Source:
    """Return the runs that the arguments choose; missing runs of a plan are run first.

    Args:
        args: The arguments of `add_arguments`.
        plans: The runs of the figure.
    """
    if args.runs:
        for flag in ("root", "datasets", "seeds", "partitions", "set", "run_output", "jobs"):
            if getattr(args, flag, None):
                raise UserError(f"--{flag.replace('_', '-')} is for runs of a plan, not for --runs.")
        return Source(tuple(expand_home(folder) for folder in args.runs))
    from cocoamix.bench.command import read_plan
    from cocoamix.bench.tables import report_names

    choice = plans.real if args.root else plans.synthetic
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
    runs = _run_plan(plan, args)
    return Source(tuple(run.folder for run in runs), report_names(plan), tuple(runs))


def _run_plan(plan: Plan, args: argparse.Namespace) -> list[Run]:
    """Execute the runs of a plan that are due, and return all of its runs."""
    from cocoamix.bench.benchmark import RunOptions, check, list_missing, run_plan

    how = RunOptions(jobs=args.jobs)
    checked = check(plan, how)
    if checked.due:
        print(f"{len(checked.due)} runs are needed first: {_estimate(checked, args)}.", flush=True)
    summary = run_plan(plan, how, checked)
    if summary.failures:
        list_missing(summary)
        raise UserError(
            f"{len(summary.failures)} of the {len(summary.runs)} runs of the plan {plan.name} are missing, as listed "
            "above. Once the cause is fixed, the same command resumes."
        )
    return summary.runs


def _estimate(checked: CheckedPlan, args: argparse.Namespace) -> str:
    """Describe how long the runs will take."""
    from cocoamix.bench.engines.local import find_slots
    from cocoamix.bench.stamp import read_stamp, seconds_of
    from cocoamix.bench.view import Pace, duration

    pace = Pace()
    for run in checked.finished:
        seconds = seconds_of(read_stamp(run.folder))
        if seconds is not None:
            pace.record(run, seconds)
    at_once = find_slots(args.jobs).jobs
    left = pace.remaining(checked.due, (), at_once)
    if left is None and not args.root:
        left = sum(_TRAINING if run.trains else _EVALUATION for run in checked.due) / at_once
    return f"about {duration(left)}" if left is not None else "the time left is shown after the first one"


def build_report(source: Source, paper: bool = False) -> Report:
    """Return the report on the runs of a figure."""
    from cocoamix.report.build import Options, build

    return build(source.folders, Options(names=source.names, paper=paper))
