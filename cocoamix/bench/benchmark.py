"""Doing a plan: what is finished, what is due, the engine that does it, and what to say at the end."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from dataclasses import dataclass, field

from cocoamix.errors import check_choice

from .engines import ENGINES
from .engines.local import find_slots, run_local
from .engines.process import CONSOLE, DONE, FAILED, Outcome
from .ledger import DUE, FINISHED, IN_THE_WAY, Ledger, load_results, plan_settings, read_stamp
from .plan import Plan
from .runs import Run, expand, select, train_command
from .view import Pace, View, duration


@dataclass(frozen=True)
class How:
    """How a plan is done."""

    jobs: int | None = None  # at a time; None is one for each GPU, or for each core
    gpus: tuple[str, ...] | None = None  # None is all
    engine: str = "local"
    slurm: tuple[str, ...] = ()  # KEY=VALUE options of the cluster
    train: tuple[str, ...] = ()  # command that does one run; empty is this project's train.py
    only: tuple[str, ...] = ()  # patterns of names
    fresh: bool = False  # what is finished is deleted and done again


@dataclass
class Summary:
    """What came of a plan."""

    runs: list[Run]
    finished: list[Run] = field(default_factory=list)  # before
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failures(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status != DONE]

    def accuracy(self, run: Run) -> float:
        """Return the accuracy of a finished run."""
        return load_results(run.folder).metrics["accuracy"]


@dataclass
class _Judged:
    runs: list[Run]
    ledger: Ledger
    finished: list[Run]
    due: list[Run]
    blocked: list[Outcome]


def _judge(plan: Plan, how: How) -> _Judged:
    """Expand a plan, check every configuration that it uses, and find out what is finished."""
    runs = select(expand(plan), how.only)
    # Another tree's train.py may know other keys; what is disposable is compared by its files.
    settings = None if how.train or plan.disposable else plan_settings()
    if settings is not None:
        for run in {(run.method, run.dataset, run.subset): run for run in reversed(runs)}.values():
            settings(run)  # a mistake is told now, not after hours
    ledger = Ledger(plan.disposable, settings)
    states = ledger.judge(runs)
    by_kind = {kind: [run for run in runs if states[run.folder].kind == kind] for kind in (FINISHED, DUE, IN_THE_WAY)}
    blocked = [Outcome(run, FAILED, states[run.folder].reason) for run in by_kind[IN_THE_WAY]]
    return _Judged(runs, ledger, by_kind[FINISHED], by_kind[DUE], blocked)


def print_commands(plan: Plan, how: How) -> None:
    """Print the command lines of the runs that are due, each after those that it needs."""
    judged = _judge(plan, how)
    print(f"# {plan.name}: {len(judged.due)} of {len(judged.runs)} runs are due, {len(judged.finished)} finished")
    for outcome in judged.blocked:
        print(f"# {outcome.run.name}: {outcome.reason}")
    for run in judged.due:
        print(f"\n# {run.name}\n{shlex.join([*train_command(how.train), *run.arguments])}")


def run_plan(plan: Plan, how: How | None = None) -> Summary:
    """Do what is due of a plan and return what came of it. KeyboardInterrupt comes after all processes have ended."""
    how = how or How()
    check_choice("--engine", how.engine, ENGINES)
    judged = _judge(plan, how)
    if how.fresh:  # after a look at the whole plan, so that a mistake in it deletes nothing
        for run in judged.runs:
            shutil.rmtree(run.folder, ignore_errors=True)
        judged = _judge(plan, how)
    summary = Summary(judged.runs, judged.finished, judged.blocked)
    slots = find_slots(how.jobs, how.gpus)
    if judged.due:
        told = f", {slots.describe()}" if how.engine == "local" else ""
        print(f"{plan.name}: {len(judged.due)} of {len(judged.runs)} runs are due{told}", flush=True)
    for run in judged.due:
        judged.ledger.prepare(run)
    pace = Pace()
    for run in judged.finished:
        seconds = read_stamp(run.folder).get("seconds")
        if isinstance(seconds, (int, float)):
            pace.record(run, seconds)
    view = View(judged.due, pace, slots.jobs)
    try:
        if judged.due:
            summary.outcomes += _engine(plan, how, judged, view)
    except KeyboardInterrupt:
        summary.outcomes += view.outcomes
        view.close()
        list_missing(summary)
        raise
    finally:
        view.close()
    return summary


def _engine(plan: Plan, how: How, judged: _Judged, view: View) -> list[Outcome]:
    command = train_command(how.train)
    if how.engine == "local":
        slots = find_slots(how.jobs, how.gpus)
        return run_local(judged.due, command, judged.ledger, slots, view, judged.finished, warm=not how.train)
    from .engines.slurm import read_options, run_slurm

    options = read_options(how.slurm)
    if how.jobs is not None:
        options["array_parallelism"] = how.jobs
    folder = plan.output / "slurm" / f"{plan.name}-{time.strftime('%Y-%m-%d-%H-%M-%S')}"
    return run_slurm(judged.due, command, judged.ledger, options, folder, view)


def tell(plan: Plan, summary: Summary, seconds: float) -> None:
    """Say what was done, and list what failed with the reason."""
    done = sum(outcome.status == DONE for outcome in summary.outcomes)
    before = f", {len(summary.finished)} were finished before" if summary.finished else ""
    failed = f", {len(summary.failures)} are missing" if summary.failures else ""
    print(f"\n{plan.name}: {done} runs done in {duration(seconds)}{before}{failed}. They are below {plan.output}.")
    list_missing(summary)


def list_missing(summary: Summary) -> None:
    """List what failed, with the reason and the file of all that the run said."""
    if summary.failures:
        print("Missing:", file=sys.stderr)
    for outcome in summary.failures:
        print(f"  {outcome.run.name} ({outcome.status}): {outcome.reason}", file=sys.stderr)
        if outcome.status == FAILED and (outcome.run.folder / CONSOLE).is_file():
            print(f"    {outcome.run.folder / CONSOLE}", file=sys.stderr)
    sys.stderr.flush()
