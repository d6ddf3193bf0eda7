"""`cocoamix bench`: the command line of plans. Slow imports happen only when they are needed."""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cocoamix.config import roles
from cocoamix.errors import run_command
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser

from .plan import Plan, load_plan, read_file, shipped
from .runs import from_word

_LONGEST = 100  # characters added to the name of an output folder


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
    for flag, kind, metavar, words in (
        ("--methods", str, "NAME", "only these methods of the plan"),
        ("--datasets", str, "NAME", "only these datasets"),
        ("--seeds", int, "SEED", "only these seeds"),
        ("--partitions", int, "K", "only these partitions of the classes"),
        ("--only", str, "PATTERN", "only runs that match, such as 'CoOp * seed 1 *', and the runs they need"),
        ("--slurm", str, "KEY=VALUE", "with --engine slurm: options of the jobs, such as partition=gpu"),
    ):
        run.add_argument(flag, nargs="+", default=[], type=kind, metavar=metavar, help=words)
    for flag, words in (
        ("--dry-run", "only print the commands of the runs that are due"),
        ("--fresh", "repeat finished runs; each empties its folder when it starts"),
        ("--no-report", "neither print nor write tables, figures and the page at the end"),
    ):
        run.add_argument(flag, action="store_true", help=words)
    run.add_argument("--root", help="folder that contains the datasets' folders (default: the plan's, else $DATA)")
    run.add_argument("--output", help="folder for all runs, in CoOp's layout (default: the plan's, else output)")
    changed = "override a key of the configuration in all runs; a shipped plan then writes to another folder"
    run.add_argument("--set", nargs=2, action="append", default=[], metavar=("KEY", "VALUE"), help=changed)
    jobs = "number of parallel runs (default: one per GPU, or per core)"
    run.add_argument("-j", "--jobs", type=int, metavar="N", help=jobs)
    run.add_argument("--gpus", metavar="LIST", help="GPUs to use, such as 0,1, or none for the CPU (default: all)")
    engine = "where to run (default: this machine)"
    run.add_argument("--engine", default="local", choices=("local", "slurm"), help=engine)


def read_plan(args: argparse.Namespace) -> Plan:
    """Return the plan that the arguments name, with their changes."""
    plan = load_plan(args.plan, args.methods, args.datasets, args.seeds, args.partitions)
    root = args.root or plan.root or os.environ.get("DATA", "")
    plan = replace(plan, overrides={key: from_word(word) for key, word in args.set})
    output = expand_home(args.output) if args.output else plan.output
    if not args.output and args.plan in shipped():  # the default folder is for the unchanged plan
        output = folder_for(plan.output, plan.overrides)
    return replace(plan, root=str(expand_home(root)) if root else "", output=output)


def folder_for(output: Path, settings: Mapping[str, Any]) -> Path:
    """Return `output` with the changed settings that affect results in its name, such as quickstart-max_epoch3."""
    words = [f"{key.split('.')[-1].lower()}{settings[key]}" for key in sorted(settings) if roles.matters(key)]
    name = re.sub(r"[^\w.+-]+", "-", "_".join(words))[:_LONGEST]
    return output.with_name(f"{output.name}-{name}") if name else output


def run(args: argparse.Namespace) -> int:
    """Run the command that the arguments name."""
    if args.command == "list":
        for name in shipped():
            print(f"{name:{max(map(len, shipped()))}} {read_file(name).about}")
        return 0
    from . import plan_report
    from .runner import PlanRunner, RunOptions

    plan, start = read_plan(args), time.monotonic()
    names = [name.strip() for name in (args.gpus or "").split(",") if name.strip() not in ("", "none")]
    gpus = None if args.gpus is None else tuple(names)
    options = RunOptions(args.jobs, gpus, args.engine, tuple(args.slurm), tuple(args.only), args.fresh)
    runner = PlanRunner(plan, options, dry=args.dry_run)
    mark = "# " if args.dry_run else ""
    if args.set and not args.output:
        print(f"{mark}The runs are written to {plan.output}; --output chooses another folder.", flush=True)
    for note in runner.notes():
        print(f"{mark}Note: {note}", flush=True)
    if args.dry_run:
        runner.print_commands()
        return 0
    # An earlier report will not match the new results, if these are interrupted.
    outcome = runner.execute(partial(plan_report.clear, plan))
    outcome.print_summary(time.monotonic() - start)
    if not args.no_report:
        plan_report.write(plan, outcome)
    return 1 if outcome.missing else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix bench", description=__doc__)
    add_arguments(parser)
    args = parser.parse_args(argv)
    same = "the same command without --fresh" if getattr(args, "fresh", False) else "the same command"
    stopped = f"\nStopped. Finished work is kept; {same} resumes."
    return run_command(partial(run, args), stopped, work=args.command == "run")
