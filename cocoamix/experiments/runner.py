"""Run a plan: find out which runs are due, execute them on this machine or on a cluster, and say what is missing."""

from __future__ import annotations

import glob
import os
import signal
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from yacs.config import CfgNode

from cocoamix.errors import CombinedUserError, UserError, some_of
from cocoamix.run.lock import FolderLock
from cocoamix.run.results import RESULTS
from cocoamix.run.state import BLOCKED, DUE, FINISHED, STAMP, Folders, Request, State, hash_code, read_models

from . import plan_report
from .local import DONE, End, Task, can_fork, count_cores, execute, find_slots, warm_up
from .plan import Plan
from .progress import Progress
from .runs import SYNTHETIC, Run, expand, select

_ADVICE = "Choose another --output or move that folder elsewhere; --fresh deletes it, unless a newer version wrote it"


@dataclass(frozen=True)
class RunOptions:
    """Options that say where a plan runs, as opposed to what it runs."""

    jobs: int | None = None  # runs at a time; None: one per GPU, or per core
    gpus: tuple[str, ...] | None = None  # None: all; empty: use only the CPU
    engine: str = "local"
    slurm: tuple[str, ...] = ()  # KEY=VALUE options of the Slurm jobs
    only: tuple[str, ...] = ()  # patterns of run names
    fresh: bool = False  # delete and repeat finished runs


@dataclass
class Outcome:
    """The outcome of a plan: its runs that have results, and how those ended that were not finished before."""

    plan: Plan
    finished: list[Run]  # before this start
    ends: list[End] = field(default_factory=list)

    @property
    def runs(self) -> list[Run]:
        """The runs that have results."""
        return [*self.finished, *(end.run for end in self.ends if end.status == DONE)]

    @property
    def missing(self) -> list[str]:
        """A line for each reason why runs have no results."""
        groups: dict[str, list[str]] = {}
        for end in self.ends:
            if end.status != DONE:
                groups.setdefault(f"({end.status}): {end.reason}", []).append(end.run.name)
        return [f"{some_of(names, 100)} {reason}" for reason, names in groups.items()]

    @property
    def names(self) -> list[tuple[str, str]]:
        """Pairs of a pattern and a name, by which the report shows the plan's names of methods."""
        # On the report's command line, an equals sign would end the pattern.
        patterns = {method.name: glob.escape(f"{method.trainer}/{method.label}") for method in self.plan.methods}
        return [(pattern.replace("=", "?"), name) for name, pattern in patterns.items()]


def run_plan(plan: Plan, options: RunOptions | None = None) -> Outcome:
    """Execute the runs of a plan that are due, and return its outcome; raise a UserError if runs are missing."""
    outcome = PlanRunner(plan, options or RunOptions()).execute()
    if outcome.missing:
        raise CombinedUserError(f"Runs of {plan.where} are missing:", outcome.missing)
    return outcome


class PlanRunner:
    """Runs a plan. It is built, and its data is checked, before any file is changed.

    Args:
        plan: The plan.
        options: Where to run it.
        dry: Whether nothing will be executed, so that neither GPUs nor data are looked at.
    """

    def __init__(self, plan: Plan, options: RunOptions, dry: bool = False) -> None:
        self.plan, self.options = plan, options
        self.runs = select(expand(plan), options.only)
        self.slots = [None] if dry else find_slots(options.jobs, options.gpus)
        is_missing = any(not (run.folder / RESULTS).exists() for run in self.runs)
        if is_missing and not dry and options.engine == "local" and can_fork(self.slots):
            warm_up()  # early, because the configurations need torch here too
        from cocoamix.train import read_dataset  # imports torch

        self._folders, self._code = Folders(read_dataset), hash_code() if plan.disposable else ""
        self._cfgs = {run.folder: _configuration(run) for run in self.runs}
        for run in self.runs:
            self._check_epoch(run)
        self.find_states()
        if not dry:
            self._check_data()

    def find_states(self) -> None:
        """Find out which runs are finished, due or blocked."""
        self.states: dict[Path, State] = {}
        for run in self.runs:
            model = None if run.model is run else run.model.folder
            request = Request(self._cfgs[run.folder], run.trains, model, run.needs, self._code, self.options.fresh)
            state = self._folders.state(run.folder, request)
            needed = [self.states[folder].kind for folder in run.needs]
            if BLOCKED in needed:
                state = State(BLOCKED, "a run that it needs is blocked")
            elif state.kind == BLOCKED:
                state = State(BLOCKED, f"{state.reason}. {_ADVICE}")
            elif DUE in needed:
                state = State(DUE, "its model is trained again", repeat=True)
            self.states[run.folder] = state

    def of_kind(self, kind: str) -> list[Run]:
        """Return the runs that are FINISHED, DUE or BLOCKED."""
        return [run for run in self.runs if self.states[run.folder].kind == kind]

    def _check_epoch(self, run: Run) -> None:
        """Refuse the evaluation of an epoch of which the training keeps no checkpoint."""
        cfg = self._cfgs[run.model.folder]
        last, every = cfg.OPTIM.MAX_EPOCH, cfg.TRAIN.CHECKPOINT_FREQ
        if any(epoch != last and (every <= 0 or epoch % every) for epoch in run.method.epochs):
            kept = f"OPTIM.MAX_EPOCH is {last} and TRAIN.CHECKPOINT_FREQ {every}"
            raise UserError(f"{run.name}: the training keeps no checkpoint of this epoch, because its {kept}.")

    def _check_data(self) -> None:
        """Refuse to start if a dataset cannot be read. Images are not opened."""
        first = {run.dataset.stem: run for run in reversed(self.of_kind(DUE)) if run.dataset.stem not in SYNTHETIC}
        problems = {name: self._folders.problem(self._cfgs[run.folder]) for name, run in first.items()}
        unreadable = [f"{name}: {problem}" for name, problem in problems.items() if problem]
        if unreadable:
            count = f"{len(unreadable)} of the {len(first)} datasets"
            raise CombinedUserError(f"Nothing was started, because {count} of the plan cannot be read:", unreadable)

    def execute(self) -> Outcome:
        """Execute the runs that are due, and return the outcome. No other runner may work in the output folder."""
        ends: list[End] = []
        if self.of_kind(DUE):
            self.plan.output.mkdir(parents=True, exist_ok=True)
            with FolderLock(self.plan.output, "another --output"):
                self.find_states()  # again, because another runner may have worked here until now
                plan_report.clear(self.plan)  # it will not match the new results
                ends = self._execute(self.of_kind(DUE))
        blocked = [End(run, BLOCKED, self.states[run.folder].reason) for run in self.of_kind(BLOCKED)]
        return Outcome(self.plan, self.of_kind(FINISHED), [*blocked, *ends])

    def _execute(self, due: list[Run]) -> list[End]:
        self._set_aside({os.path.abspath(run.folder) for run in due if run.trains})
        is_local = self.options.engine == "local"
        gpus = f" on GPU {', '.join(filter(None, self.slots))}" if any(self.slots) else ""
        where = f", {len(self.slots)} at a time{gpus}" if is_local else ""
        print(f"{self.plan.name}: {len(due)} of {len(self.runs)} runs are due{where}", flush=True)
        again = [
            self.states[run.folder].reason for run in due if self.states[run.folder].repeat and run.folder.is_dir()
        ]
        if again:
            print(f"{len(again)} of them empty their folders and start anew ({some_of(dict.fromkeys(again))}).")
        for number in (signal.SIGTERM, signal.SIGHUP):  # like Ctrl-C, but SIGHUP is ignored under nohup
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, signal.default_int_handler)
        start, threads = uuid.uuid4().hex[:12], max(1, count_cores() // len(self.slots))
        tasks = [Task(run, start, self.states[run.folder].repeat, self._code, threads) for run in due]
        progress = Progress(due, len(self.slots) if is_local else 0)
        with progress.bar:
            if is_local:
                return execute(tasks, self.slots, progress)
            from .slurm import run_on_cluster

            folder = self.plan.output / "slurm" / f"{self.plan.name}-{time.strftime('%Y-%m-%d-%H-%M-%S')}"
            return run_on_cluster(tasks, self.options.slurm, self.options.jobs, folder, progress)

    def _set_aside(self, trained: set[str]) -> None:
        """Rename the results of models that are trained again, of this plan or another: no report may show them."""
        used = {run.folder: {*map(os.path.abspath, run.needs)} for run in self.runs}
        for stamp in self.plan.output.rglob(STAMP) if trained else ():
            used.setdefault(stamp.parent, set()).update(read_models(stamp.parent))
        for run in self.of_kind(BLOCKED):  # their results are not of these models
            used.pop(run.folder)
        now = time.strftime("%Y-%m-%d-%H-%M-%S")
        for folder in (folder for folder, models in used.items() if trained.intersection(models)):
            for path in [*folder.glob(RESULTS), *folder.glob("log.txt*")]:
                if not path.name.endswith("-before"):
                    path.rename(f"{path}-{now}-before")


def _configuration(run: Run) -> CfgNode:
    """Return the configuration of a run. The first call imports the trainers, which takes seconds."""
    from cocoamix.train import setup_cfg

    own = {**run.plan.set, **run.method.set}
    origins = {key: run.plan.where for key in own if key not in run.plan.overrides}
    try:
        return setup_cfg(run.arguments(), origins, run.settings)
    except UserError as error:
        raise UserError(f"The run {run.name} of the plan cannot be started: {error}") from error
