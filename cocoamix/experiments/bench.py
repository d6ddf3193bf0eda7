"""`cocoamix bench`: the command line of plans. Slow imports happen only when they are needed."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cocoamix.config import roles
from cocoamix.errors import run_command
from cocoamix.io.paths import expand_home
from cocoamix.parser import Parser

from .plan import Plan, load_plan, read_file, shipped
from .runs import from_word

if TYPE_CHECKING:
    from .runner import Outcome, PlanRunner

_LONGEST = 100  # characters added to the name of an output folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands and their arguments."""
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("list", help="list the shipped plans")
    about = (
        "Run a plan; if it is stopped, the same command resumes it. Exit status: 0 if all runs are finished, 1 if some "
        "are missing (listed with the reason), 2 for bad arguments, 130 after Ctrl-C."
    )
    run = commands.add_parser("run", help="run a plan, or resume it", description=about)
    run.add_argument("plan", help="name of a shipped plan, or a .yaml file")
    several: dict[str, Any] = {"nargs": "+", "default": []}
    pairs: dict[str, Any] = {"nargs": 2, "action": "append", "default": [], "metavar": ("KEY", "VALUE")}
    engines: dict[str, Any] = {"default": "local", "choices": ("local", "slurm")}
    for flag, words, options in (
        ("--root", "folder that contains the datasets' folders (default: the plan's, else $DATA)", {}),
        ("--output", "folder for all runs, in CoOp's layout (default: the plan's, else output)", {}),
        ("--methods", "only these methods of the plan", several),
        ("--datasets", "only these datasets", several),
        ("--seeds", "only these seeds", {**several, "type": int}),
        ("--partitions", "only these partitions of the classes", {**several, "type": int}),
        ("--only", "only runs that match a pattern, such as 'CoOp * seed 1 *', and the runs they need", several),
        ("--set", "override a key in all runs; a shipped plan then writes to another folder", pairs),
        ("--jobs", "number of parallel runs (default: one per GPU, or per core)", {"type": int}),
        ("--gpus", "GPUs to use, such as 0,1, or none for the CPU (default: all)", {}),
        ("--engine", "where to run (default: this machine)", engines),
        ("--slurm", "with --engine slurm: options KEY=VALUE of the jobs, such as partition=gpu", several),
        ("--dry-run", "only print the commands of the runs that are due", {"action": "store_true"}),
        ("--fresh", "repeat finished runs; each empties its folder when it starts", {"action": "store_true"}),
        ("--no-report", "neither print nor write tables, figures and the page", {"action": "store_true"}),
    ):
        run.add_argument(*(["-j"] if flag == "--jobs" else []), flag, help=words, **options)


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
    for note, number in Counter(state.note for state in runner.states.values() if state.note).items():
        print(f"{mark}Note: {number} finished runs were {note}.", flush=True)
    if args.dry_run:
        _print_commands(runner)
        return 0
    outcome = runner.execute()
    _print_summary(outcome, time.monotonic() - start)
    if not args.no_report:
        plan_report.write(plan, outcome)
    return 1 if outcome.missing else 0


def _print_commands(runner: PlanRunner) -> None:
    """Print the command lines of the runs that are due, each after the runs that it needs."""
    kinds = Counter(state.kind for state in runner.states.values())
    print(f"# {runner.plan.name}: {kinds['due']} of {len(runner.runs)} runs are due, {kinds['finished']} finished")
    for run in sorted(runner.runs, key=lambda run: runner.states[run.folder].kind):  # blocked before due
        state = runner.states[run.folder]
        if state.kind != "finished":
            print(f"\n# {run.name} is {state.kind}{state.reason and f': {state.reason}'}")
            print(run.command() if state.kind == "due" else "")


def _print_summary(outcome: Outcome, seconds: float) -> None:
    """Print what was done, and list the missing runs with their reasons."""
    before, took = len(outcome.finished), time.strftime("%H:%M:%S", time.gmtime(seconds))
    counts = f"{len(outcome.runs) - before} runs done, {before} finished before"
    print(f"\n{outcome.plan.name}: {counts}, in {took}. Results: {outcome.plan.output}.", flush=True)
    for line in ["Missing:", *(f"  {line}" for line in outcome.missing)] if outcome.missing else []:
        print(line, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = Parser(prog="cocoamix bench", description=__doc__)
    add_arguments(parser)
    args = parser.parse_args(argv)
    same = "the same command without --fresh" if getattr(args, "fresh", False) else "the same command"
    stopped = f"\nStopped. Finished work is kept; {same} resumes."
    return run_command(partial(run, args), stopped, work=args.command == "run")
