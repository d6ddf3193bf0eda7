"""`cocoamix bench`: the command line of benchmarks. Slow imports happen only when they are needed."""

from __future__ import annotations

import argparse
import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from cocoamix.errors import run_command
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser

from . import __doc__ as about
from .engines import ENGINES
from .output_folder import folder_for
from .plan import Plan, describe, load_plan, override, shipped

if TYPE_CHECKING:
    from .benchmark import RunOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("list", help="list the shipped plans")
    run = commands.add_parser(
        "run",
        help="run a plan, or resume it",
        description="Run a plan; if it is stopped, the same command resumes it. Exit status: 0 if all runs are "
        "finished, 1 if some are missing (listed with the reason), 2 for bad arguments, 130 after Ctrl-C.",
    )
    run.add_argument("plan", help="name of a shipped plan, or a .yaml file")
    run.add_argument("--root", help="folder that contains the datasets' folders (default: the plan's, else $DATA)")
    run.add_argument("--output", help="folder for all runs, in CoOp's layout (default: the plan's, else output)")
    run.add_argument("--methods", nargs="+", default=[], metavar="NAME", help="only these methods of the plan")
    run.add_argument("--datasets", nargs="+", default=[], metavar="NAME", help="only these datasets")
    run.add_argument("--seeds", nargs="+", default=[], type=int, metavar="SEED", help="only these seeds")
    run.add_argument(
        "--partitions", nargs="+", default=[], type=int, metavar="K", help="only these partitions of the classes"
    )
    run.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="only runs that match, such as 'CoOp * seed 1 *', and the runs they need",
    )
    run.add_argument(
        "--set",
        nargs=2,
        action="append",
        default=[],
        metavar=("KEY", "VALUE"),
        help="override a key of the configuration in all runs; a shipped plan then writes to another folder",
    )
    run.add_argument(
        "-j", "--jobs", type=int, metavar="N", help="number of parallel runs (default: one per GPU, or per core)"
    )
    run.add_argument("--gpus", metavar="LIST", help="GPUs to use, such as 0,1, or none for the CPU (default: all)")
    run.add_argument("--engine", default="local", choices=ENGINES, help="where to run (default: this machine)")
    run.add_argument(
        "--slurm",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="with --engine slurm: options of the jobs, such as partition=gpu",
    )
    run.add_argument(
        "--train", metavar="COMMAND", help="command that starts one run (default: this project's train.py)"
    )
    run.add_argument("--dry-run", action="store_true", help="only print the commands of the runs that are due")
    run.add_argument(
        "--fresh", action="store_true", help="repeat finished runs; each empties its folder when it starts"
    )
    run.add_argument(
        "--no-report", action="store_true", help="neither print nor write tables, figures and the page at the end"
    )


def read_plan(args: argparse.Namespace) -> Plan:
    """Return the plan that the arguments name, with their changes."""
    plan = load_plan(args.plan, args.methods, args.datasets, args.seeds, args.partitions)
    root = args.root or plan.root or os.environ.get("DATA", "")
    plan = override(plan, tuple((key, value) for key, value in args.set))
    output = expand_home(args.output) if args.output else plan.output
    if not args.output and args.plan in shipped():  # the default folder is for the unchanged plan
        output = folder_for(plan.output, plan.overrides)
    return replace(plan, root=str(expand_home(root)) if root else "", output=output)


def read_run_options(args: argparse.Namespace) -> RunOptions:
    """Return the options in the arguments that say how to run a plan."""
    from .benchmark import RunOptions

    gpus = None
    if args.gpus is not None:
        gpus = () if args.gpus == "none" else tuple(one.strip() for one in args.gpus.split(",") if one.strip())
    train = tuple(shlex.split(args.train)) if args.train else ()
    return RunOptions(args.jobs, gpus, args.engine, tuple(args.slurm), train, tuple(args.only), args.fresh)


def list_plans() -> None:
    """Print the shipped plans."""
    width = max(map(len, shipped()))
    for name in shipped():
        print(f"{name:{width}} {describe(name)}")


def run(args: argparse.Namespace) -> int:
    """Run the command that the arguments name."""
    if args.command == "list":
        list_plans()
        return 0
    from . import tables
    from .benchmark import check, classify_runs, print_commands, print_summary, run_plan

    plan, how = read_plan(args), read_run_options(args)
    start = time.monotonic()
    # Before any file is changed, so that mistakes are reported first.
    checked = classify_runs(plan, how) if args.dry_run else check(plan, how)
    if args.set and not args.output:
        print(
            f"{'# ' * args.dry_run}The runs are written to {plan.output}; --output chooses another folder.", flush=True
        )
    if args.dry_run:
        print_commands(plan, how, checked)
        return 0
    if checked.due:
        tables.clear(plan)
    summary = run_plan(plan, how, checked)
    print_summary(plan, summary, time.monotonic() - start)
    if not args.no_report:
        tables.show(plan, summary)
    return 1 if summary.failures else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix bench", description=about)
    add_arguments(parser)
    args = parser.parse_args(argv)
    stopped = "\nStopped. Finished work is kept; the same command resumes."
    return run_command(partial(run, args), stopped, work=args.command == "run")
