"""Runs a plan: decides which runs are due, hands them to an engine, and reports at the end."""

from __future__ import annotations

import shlex
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cocoamix.errors import check_choice

from .data_check import check_data
from .engines import ENGINES
from .engines.local import find_slots, run_local
from .engines.process import DONE, ELSEWHERE, FAILED, Outcome
from .epochs import check_epochs
from .ledger import BLOCKED, DUE, FINISHED, Ledger, load_results, plan_settings
from .plan import Plan
from .runs import Run, expand, select, train_command
from .stamp import CONSOLE, read_stamp, seconds_of
from .view import Pace, View, duration

_NAMES_SHOWN = 3  # of the runs that are missing for the same reason


@dataclass(frozen=True)
class RunOptions:
    """Options that say how to run a plan, as opposed to what the plan runs."""

    jobs: int | None = None  # runs at a time; None: one per GPU, or per core
    gpus: tuple[str, ...] | None = None  # None: all; empty: use only the CPU
    engine: str = "local"
    slurm: tuple[str, ...] = ()  # KEY=VALUE options of the Slurm jobs
    train: tuple[str, ...] = ()  # command of one run; empty: this project's train.py
    only: tuple[str, ...] = ()  # patterns of run names
    fresh: bool = False  # delete and repeat finished runs


@dataclass
class Summary:
    """The outcome of a plan."""

    runs: list[Run]
    finished: list[Run] = field(default_factory=list)  # finished before this start
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failures(self) -> list[Outcome]:
        """The outcomes of runs that are not done."""
        return [outcome for outcome in self.outcomes if outcome.status != DONE]

    def accuracy(self, run: Run) -> float:
        """Return the accuracy of a finished run."""
        return load_results(run.folder).metrics["accuracy"]


@dataclass
class CheckedPlan:
    """A checked plan: which of its runs are finished, due, or blocked."""

    runs: list[Run]
    ledger: Ledger
    finished: list[Run]
    due: list[Run]
    blocked: list[Outcome]


def classify_runs(plan: Plan, how: RunOptions) -> CheckedPlan:
    """Expand a plan, check the configuration of every run, and find out which runs are due. No file is changed."""
    check_choice("--engine", how.engine, ENGINES)
    runs = select(expand(plan), how.only)
    settings = None if how.train else plan_settings()  # another tree's train.py may know other keys
    if settings is not None:
        for run in runs:
            settings(run)  # so that a mistake shows now, not hours later
        check_epochs(runs)
    ledger = Ledger(plan.disposable, settings, time.time() if how.fresh else None)
    states = ledger.classify(runs)
    by_kind = {kind: [run for run in runs if states[run.folder].kind == kind] for kind in (FINISHED, DUE, BLOCKED)}
    blocked = [Outcome(run, BLOCKED, states[run.folder].reason) for run in by_kind[BLOCKED]]
    return CheckedPlan(runs, ledger, by_kind[FINISHED], by_kind[DUE], blocked)


def print_commands(plan: Plan, how: RunOptions, checked: CheckedPlan) -> None:
    """Print the command lines of the runs that are due, each after the runs that it needs."""
    print(f"# {plan.name}: {len(checked.due)} of {len(checked.runs)} runs are due, {len(checked.finished)} finished")
    for outcome in checked.blocked:
        print(f"# {outcome.run.name}: {outcome.reason}")
    for run in checked.due:
        print(f"\n# {run.name}\n{shlex.join([*train_command(how.train), *run.arguments])}")


def check(plan: Plan, how: RunOptions) -> CheckedPlan:
    """Classify the runs of a plan, and check the options and the data of the runs that are due. No file is changed."""
    find_slots(how.jobs, how.gpus)
    if how.engine != "local":
        _cluster_options(how)
    checked = classify_runs(plan, how)
    if not how.train:
        check_data(checked.due)
    return checked


def run_plan(plan: Plan, how: RunOptions | None = None, checked: CheckedPlan | None = None) -> Summary:
    """Execute the runs that are due and return the outcome.

    Args:
        plan: The plan.
        how: How to run it.
        checked: What `check` returned, if it has already been called.

    Raises:
        KeyboardInterrupt: The user stopped the plan. It is raised after all processes have ended.
    """
    how = how or RunOptions()
    checked = checked or check(plan, how)
    summary = Summary(checked.runs, checked.finished, checked.blocked)
    slots = find_slots(how.jobs, how.gpus)
    if checked.due:
        where = f", {slots.describe()}" if how.engine == "local" else ""
        print(f"{plan.name}: {len(checked.due)} of {len(checked.runs)} runs are due{where}", flush=True)
    again = [why for run in checked.due if (why := checked.ledger.why_deleted(run))]
    if again:
        print(
            f"{len(again)} of them are repeated ({again[0]}). Each deletes its own folder when it starts.", flush=True
        )
    pace = Pace()
    for run in checked.finished:
        seconds = seconds_of(read_stamp(run.folder))
        if seconds is not None:
            pace.record(run, seconds)
    view = View(checked.due, pace, slots.jobs if how.engine == "local" else None)
    try:
        if checked.due:
            summary.outcomes += _run_engine(plan, how, checked, view)
    except KeyboardInterrupt:
        summary.outcomes += view.outcomes
        view.close()
        _rename_orphans(summary, checked)
        list_missing(summary)
        raise
    finally:
        view.close()
    _rename_orphans(summary, checked)
    return summary


def _rename_orphans(summary: Summary, checked: CheckedPlan) -> None:
    """Rename earlier results of missing runs whose model was deleted or retrained, so that no report shows them."""
    missing = [outcome.run for outcome in summary.failures if outcome.status != BLOCKED]
    for run in checked.ledger.rename_orphans(missing):
        print(
            f"{run.name}: its earlier results in {run.folder} were renamed, because their model was deleted or "
            "retrained.",
            flush=True,
        )


def _run_engine(plan: Plan, how: RunOptions, checked: CheckedPlan, view: View) -> list[Outcome]:
    """Execute the runs that are due on the chosen engine."""
    command = train_command(how.train)
    if how.engine == "local":
        slots = find_slots(how.jobs, how.gpus)
        return run_local(checked.due, command, checked.ledger, slots, view, checked.finished, warm=not how.train)
    from .engines.slurm import run_slurm

    folder = plan.output / "slurm" / f"{plan.name}-{time.strftime('%Y-%m-%d-%H-%M-%S')}-{uuid.uuid4().hex[:6]}"
    return run_slurm(checked.due, command, checked.ledger, _cluster_options(how), folder, view)


def _cluster_options(how: RunOptions) -> dict[str, Any]:
    from .engines.slurm import read_options

    options = read_options(how.slurm)
    return options if how.jobs is None else {**options, "array_parallelism": how.jobs}


def print_summary(plan: Plan, summary: Summary, seconds: float) -> None:
    """Print what was done, and list the failures with their reasons."""
    done = [outcome for outcome in summary.outcomes if outcome.status == DONE]
    others = sum(outcome.reason == ELSEWHERE for outcome in done)
    count = len(done) - others
    text = f"{count} {'run' if count == 1 else 'runs'} done in {duration(seconds)}"
    text += f", {others} {ELSEWHERE}" if others else ""
    text += f", {len(summary.finished)} were finished before" if summary.finished else ""
    text += f", {len(summary.failures)} are missing" if summary.failures else ""
    print(f"\n{plan.name}: {text}. The results are in {plan.output}.")
    list_missing(summary)


def list_missing(summary: Summary) -> None:
    """List the missing runs with the reason and, for a failed run, its console file."""
    if summary.failures:
        print("Missing:", file=sys.stderr)
    for group in _by_reason(summary.failures):
        first, names = group[0], [outcome.run.name for outcome in group]
        listed = ", ".join(names[:_NAMES_SHOWN])
        listed += f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        reason = first.reason if len(group) == 1 else _shared_reason(first)
        print(f"  {listed} ({first.status}): {reason}", file=sys.stderr)
        if first.status == FAILED and (first.run.folder / CONSOLE).is_file():
            print(f"    {first.run.folder / CONSOLE}", file=sys.stderr)
    sys.stderr.flush()


def _by_reason(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Group the outcomes by reason. Each failed run forms a separate group, because it has its own console file."""
    groups: dict[object, list[Outcome]] = {}
    for outcome in outcomes:
        key = outcome.run.folder if outcome.status == FAILED else (outcome.status, _shared_reason(outcome))
        groups.setdefault(key, []).append(outcome)
    return list(groups.values())


def _shared_reason(outcome: Outcome) -> str:
    """Return a reason that names a folder, reworded for several runs."""
    return outcome.reason.replace(f"{outcome.run.folder} holds", "the folder of each holds")
