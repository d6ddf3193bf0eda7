"""Run a plan: find out which runs are due, execute them on this machine or on a cluster, and say what is missing."""

from __future__ import annotations

import glob
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from cocoamix.errors import CombinedUserError, UserError
from cocoamix.run.lock import FolderLock
from cocoamix.run.results import RESULTS
from cocoamix.run.state import BLOCKED, DUE, FINISHED, Folders, Request, State, hash_code, read_stamp

from .local import DONE, FAILED, End, LocalEngine, Slots, find_slots, interrupted_by_signals
from .plan import Plan
from .progress import Pace, Progress, duration
from .runs import SYNTHETIC, Run, expand, select
from .worker import CONSOLE, Task, can_fork, warm_up

_NAMES_SHOWN = 3  # of the runs that are missing for the same reason
_ADVICE = "Choose another --output, move that folder elsewhere, or repeat the run with --fresh, which deletes it."


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
    def missing(self) -> list[End]:
        """The runs that have none."""
        return [end for end in self.ends if end.status != DONE]

    @property
    def names(self) -> list[tuple[str, str]]:
        """Pairs of a pattern and a name, by which the report shows the plan's names of methods."""
        # On the report's command line, an equals sign would end the pattern.
        return [
            (glob.escape(f"{method.trainer}/{method.label}").replace("=", "?"), method.name)
            for method in self.plan.methods
        ]


def run_plan(plan: Plan, options: RunOptions | None = None) -> Outcome:
    """Execute the runs of a plan that are due, and return its outcome; raise a UserError if runs are missing."""
    outcome = PlanRunner(plan, options or RunOptions()).execute()
    if outcome.missing:
        raise CombinedUserError(f"{len(outcome.missing)} runs of the plan {plan.name} are missing:", missing(outcome))
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
        self._all = expand(plan)
        self.runs = select(self._all, options.only)
        self.slots = Slots() if dry else find_slots(options.jobs, options.gpus)
        self._cluster = _cluster_options(options)
        if not dry and options.engine == "local" and can_fork(self.slots.gpus) and _are_missing(self.runs):
            warm_up()  # early, because the configurations need torch here too
        from cocoamix.train import read_dataset  # imports torch

        self._folders = Folders(read_dataset)
        self._code = hash_code() if plan.disposable else ""
        self._cfgs = {run.folder: _configuration(run) for run in self.runs}
        _check_epochs(self.runs, self._cfgs)
        self.find_states()
        if not dry:
            self._check_data()

    def find_states(self) -> None:
        """Find out which runs are finished, due or blocked."""
        self.states: dict[Path, State] = {}
        for run in self.runs:
            state = State(DUE, "--fresh", repeat=True) if self.options.fresh else self._state(run)
            needed = [self.states[folder] for folder in run.needs]
            if any(other.kind == BLOCKED for other in needed):
                state = State(BLOCKED, "a run that it needs is blocked")
            elif state.kind != BLOCKED and any(other.kind == DUE for other in needed):
                state = State(DUE, "its model is trained again", repeat=True)
            self.states[run.folder] = state

    def _state(self, run: Run) -> State:
        cfg, model = self._cfgs[run.folder], run.flags.get("model_dir")
        return self._folders.state(
            run.folder, Request(cfg, run.trains, Path(model) if model else None, run.needs, self._code)
        )

    def of_kind(self, kind: str) -> list[Run]:
        """Return the runs that are FINISHED, DUE or BLOCKED."""
        return [run for run in self.runs if self.states[run.folder].kind == kind]

    def blocked(self) -> list[End]:
        """Return the blocked runs with the reasons."""
        runs = [(run, self.states[run.folder].reason) for run in self.of_kind(BLOCKED)]
        return [End(run, BLOCKED, f"{why}. {_ADVICE}" if str(run.folder) in why else why) for run, why in runs]

    def notes(self) -> list[str]:
        """Return notes on finished runs, each with the number of runs that it is about."""
        notes = [state.note for state in self.states.values() if state.note]
        return [f"{notes.count(note)} finished runs were {note}." for note in dict.fromkeys(notes)]

    def _check_data(self) -> None:
        """Refuse to start if a dataset cannot be read. Images are not opened."""
        due = [run for run in self.of_kind(DUE) if run.dataset not in SYNTHETIC]
        first = {run.dataset: run for run in reversed(due)}
        problems = {name: self._folders.problem(self._cfgs[run.folder]) for name, run in reversed(first.items())}
        unreadable = [f"{name}: {problem}" for name, problem in problems.items() if problem]
        if unreadable:
            count = f"{len(unreadable)} of the {len({run.dataset for run in due})} datasets"
            raise CombinedUserError(f"Nothing was started, because {count} of the plan cannot be read:", unreadable)

    def print_commands(self) -> None:
        """Print the command lines of the runs that are due, each after the runs that it needs."""
        due, finished = self.of_kind(DUE), self.of_kind(FINISHED)
        print(f"# {self.plan.name}: {len(due)} of {len(self.runs)} runs are due, {len(finished)} finished")
        for end in self.blocked():
            print(f"# {end.run.name}: {end.reason}")
        for run in due:
            reason = self.states[run.folder].reason
            print(f"\n# {run.name}{f' ({reason})' if reason else ''}\n{run.command()}")

    # ------------------------------------------------------------------ execution

    def execute(self) -> Outcome:
        """Execute the runs that are due, and return the outcome. No other runner may work in the output folder.

        Raises:
            KeyboardInterrupt: The user stopped the plan. It is raised after all processes have ended.
        """
        if not self.of_kind(DUE):
            return self._outcome([])
        self.plan.output.mkdir(parents=True, exist_ok=True)
        with FolderLock(self.plan.output, "another --output"):
            self.find_states()  # again, because another runner may have worked here until now
            due, pace = self.of_kind(DUE), Pace()
            for run in self.of_kind(FINISHED):
                seconds = read_stamp(run.folder).get("seconds")
                if isinstance(seconds, (int, float)):
                    pace.record(run, seconds)
            self._announce(due)
            progress = Progress(due, pace, self.slots.jobs if self.options.engine == "local" else None)
            try:
                return self._outcome(self._run_engine(self._tasks(due), progress))
            finally:
                progress.close()

    def _announce(self, due: Sequence[Run]) -> None:
        where = f", {self.slots.describe()}" if self.options.engine == "local" else ""
        print(f"{self.plan.name}: {len(due)} of {len(self.runs)} runs are due{where}", flush=True)
        again = [self.states[run.folder] for run in due if self.states[run.folder].repeat and run.folder.is_dir()]
        if again:
            reasons = ", ".join(dict.fromkeys(state.reason for state in again))
            print(f"{len(again)} of them start anew ({reasons}). Each empties its folder when it starts.", flush=True)

    def _tasks(self, due: Sequence[Run]) -> list[Task]:
        start = uuid.uuid4().hex[:12]
        dependents: dict[Path, list[Path]] = {}
        for run in self._all:
            for folder in run.needs:
                dependents.setdefault(folder, []).append(run.folder)
        threads = self.slots.threads
        return [
            Task(run, start, self.states[run.folder].repeat, self._code, tuple(dependents.get(run.folder, ())), threads)
            for run in due
        ]

    def _run_engine(self, tasks: Sequence[Task], progress: Progress) -> list[End]:
        with interrupted_by_signals():
            if self.options.engine == "local":
                finished = self.of_kind(FINISHED)
                return LocalEngine(tasks, self.slots, progress, finished).execute()
            from .slurm import run_on_cluster

            folder = self.plan.output / "slurm" / f"{self.plan.name}-{time.strftime('%Y-%m-%d-%H-%M-%S')}"
            return run_on_cluster(tasks, self._cluster, folder, progress)

    def _outcome(self, ends: Sequence[End]) -> Outcome:
        return Outcome(self.plan, self.of_kind(FINISHED), [*self.blocked(), *ends])


def _cluster_options(options: RunOptions) -> dict[str, Any]:
    """Return the options of the jobs on a cluster; empty for this machine."""
    if options.engine == "local":
        return {}
    from .slurm import read_options

    return read_options([*options.slurm, *([] if options.jobs is None else [f"array_parallelism={options.jobs}"])])


def _are_missing(runs: Sequence[Run]) -> bool:
    return any(not (run.folder / RESULTS).exists() for run in runs)


def _configuration(run: Run) -> CfgNode:
    """Return the configuration of a run. The first call imports the trainers, which takes seconds."""
    from cocoamix.train import setup_cfg

    try:
        return setup_cfg(run.arguments(), dict(run.origins), run.settings)
    except UserError as error:
        raise UserError(f"The run {run.name} of the plan cannot be started: {error}") from error


def _check_epochs(runs: Sequence[Run], cfgs: Mapping[Path, CfgNode]) -> None:
    """Refuse evaluations of epochs of which the training keeps no checkpoint."""
    trainings = {run.folder: run for run in runs if run.trains}
    for run in runs:
        training = trainings.get(run.needs[0]) if run.needs else None
        if run.epoch is None or training is None:
            continue
        cfg = cfgs[training.folder]
        last, every = cfg.OPTIM.MAX_EPOCH, cfg.TRAIN.CHECKPOINT_FREQ
        # A second stage adds epochs, and their number is known only when it ends.
        open_end = cfg.TRAINER.NAME.endswith("CoCoAMix") and cfg.TRAINER.COCOAMIX.STAGE == "two"
        between = every > 0 and run.epoch % every == 0 and (run.epoch < last or open_end)
        if run.epoch != last and not between:
            raise UserError(
                f"The run {run.name} of the plan evaluates epoch {run.epoch}, of which {training.method} keeps no "
                f"checkpoint: its OPTIM.MAX_EPOCH is {last} and its TRAIN.CHECKPOINT_FREQ {every}. Choose other "
                "epochs, or change these keys in its `set` or with --set."
            )


# ---------------------------------------------------------------------- the end


def print_summary(outcome: Outcome, seconds: float) -> None:
    """Print what was done, and list the missing runs with their reasons."""
    count = sum(end.status == DONE for end in outcome.ends)
    text = f"{count} {'run' if count == 1 else 'runs'} done in {duration(seconds)}"
    text += f", {len(outcome.finished)} were finished before" if outcome.finished else ""
    text += f", {len(outcome.missing)} are missing" if outcome.missing else ""
    print(f"\n{outcome.plan.name}: {text}. The results are in {outcome.plan.output}.", flush=True)
    if outcome.missing:
        print("\n".join(["Missing:", *(f"  {line}" for line in missing(outcome))]), file=sys.stderr, flush=True)


def missing(outcome: Outcome) -> list[str]:
    """Return a line for each reason why runs are missing. Each failed run has its own, with its console file."""
    groups: dict[object, list[End]] = {}
    for end in outcome.missing:
        shared = end.reason.replace(f"{end.run.folder} holds", "the folder of each holds")
        groups.setdefault(end.run.folder if end.status == FAILED else (end.status, shared), []).append(end)
    lines = []
    for key, group in groups.items():
        first, names = group[0], [end.run.name for end in group]
        listed = ", ".join(names[:_NAMES_SHOWN])
        listed += f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        reason = first.reason if len(group) == 1 else key[1] if isinstance(key, tuple) else first.reason
        console = first.run.folder / CONSOLE
        lines.append(
            f"{listed} ({first.status}): {reason}"
            + (f" ({console})" if first.status == FAILED and console.is_file() else "")
        )
    return lines
