"""Execute runs on this machine: several processes at a time, on its cores or one on each GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cocoamix.bench.ledger import Ledger
from cocoamix.bench.runs import Run
from cocoamix.bench.view import View
from cocoamix.errors import UserError

from .process import DONE, FAILED, LEFT_OUT, BusyError, Outcome, Process, begin
from .signals import interrupted_by_signals
from .warm import can_fork

_MOST_BY_DEFAULT = 8  # processes without GPUs; each holds a model in memory
_POLL = 0.1  # seconds
_RETRY = 1.0  # seconds before retrying a run that another process is working on


@dataclass(frozen=True)
class Slots:
    """How many processes run at a time, and what each may use."""

    jobs: int
    threads: int  # of each process
    gpus: tuple[str, ...] = ()
    hidden: bool = False  # hide the GPUs of the machine from the processes

    def environment(self, slot: int) -> dict[str, str]:
        """Return the environment variables of a process in a slot."""
        # A value that the user has set takes precedence.
        found = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(self.threads)}
        if self.gpus or self.hidden:
            found["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)] if self.gpus else ""
        return found

    def describe(self) -> str:
        """Describe the slots in a few words."""
        where = f"on GPU {', '.join(self.gpus)}" if self.gpus else f"with {self.threads} thread(s) each"
        return f"{self.jobs} at a time {where}"


def find_slots(jobs: int | None = None, gpus: Sequence[str] | None = None) -> Slots:
    """Return the slots of this machine.

    Args:
        jobs: The number of runs at a time; by default one per GPU, or per core if there is none.
        gpus: The GPUs to use: all if None, only the CPU if empty.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"-j is {jobs}; it must be at least 1.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = tuple(find_gpus() if gpus is None else gpus)
    at_once = jobs or len(found) or min(cores, _MOST_BY_DEFAULT)
    return Slots(at_once, max(1, cores // at_once), found, hidden=gpus is not None and not found)


def find_gpus() -> list[str]:
    """Return the GPUs that may be used: those in CUDA_VISIBLE_DEVICES if it is set, else all that the driver lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [one.strip() for one in visible.split(",") if one.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    lines = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")] if not listed.returncode else []
    return [str(number) for number in range(len(lines))]


def run_local(
    runs: Sequence[Run],
    command: Sequence[str],
    ledger: Ledger,
    slots: Slots,
    view: View,
    done: Sequence[Run] = (),
    warm: bool = False,
) -> list[Outcome]:
    """Execute the runs and return the outcome of each.

    Args:
        runs: The runs to execute, each after the runs that it needs.
        command: The command of a run, without its arguments.
        ledger: Decides which runs are finished.
        slots: How many processes run at a time.
        view: Shows the progress.
        done: Runs of the plan that are already finished.
        warm: Whether runs may be forked, because `command` is this project's own train.py.

    Raises:
        KeyboardInterrupt: A signal asked to stop. The processes have ended.
    """
    forked = warm and can_fork(slots.gpus)
    start = partial(begin, command=command, ledger=ledger, warm=forked, say=view.say)
    work = _Work(runs, start, slots, view, done)
    with interrupted_by_signals() as ignore_signals:
        try:
            while work.waiting or work.running:
                work.step()
                time.sleep(_POLL)
        finally:
            ignore_signals()  # while the processes are ended
            work.stop()
    return work.outcomes


class _Work:
    """Keeps track of the waiting, running and ended runs."""

    def __init__(
        self,
        runs: Sequence[Run],
        start: Callable[..., Process | Outcome],
        slots: Slots,
        view: View,
        done: Sequence[Run],
    ) -> None:
        self.waiting = list(runs)
        self.running: dict[int, Process] = {}
        self.outcomes: list[Outcome] = []
        self._begin, self._slots, self._view = start, slots, view
        self._filled = {part for run in done for part in run.stored}  # parts of the feature store
        self._lost: dict[Path, str] = {}  # failed or left-out runs: folders and names
        self._busy: dict[Path, float] = {}  # folders that other processes use, and when to try again

    def step(self) -> None:
        """Collect ended runs and start those that are ready."""
        for slot, process in list(self.running.items()):
            outcome = process.poll()
            if outcome is not None:
                del self.running[slot]
                self._collect(outcome)
        for run in [one for one in self.waiting if any(folder in self._lost for folder in one.needs)]:
            self.waiting.remove(run)
            first = next(self._lost[folder] for folder in run.needs if folder in self._lost)
            self._collect(Outcome(run, LEFT_OUT, f"it needs {first}"))
        for slot in range(self._slots.jobs):
            if slot not in self.running:
                self._start(slot)
        self._view.tick(self._progress())

    def stop(self) -> None:
        """End all processes."""
        for process in self.running.values():
            process.stop()
        for process in self.running.values():
            process.end()
        self.running.clear()

    def _start(self, slot: int) -> None:
        """Start a run in a free slot. Runs that another process has finished in the meantime are collected."""
        while slot not in self.running:
            ready = self._ready()
            if not ready:
                return
            run = min(ready, key=self._filled_twice)  # of equal ones, the first
            try:
                begun = self._begin(run, environment=self._slots.environment(slot))
            except BusyError:
                self._wait_for(run)
                continue
            except UserError as error:
                begun = Outcome(run, FAILED, str(error))
            self.waiting.remove(run)
            if isinstance(begun, Outcome):
                self._collect(begun)
            else:
                self.running[slot] = begun
                self._view.started(run)

    def _wait_for(self, run: Run) -> None:
        if run.folder not in self._busy:
            self._view.say(f"{run.name}: another process is working in {run.folder}; waiting for it.")
        self._busy[run.folder] = time.monotonic() + _RETRY

    def _ready(self) -> list[Run]:
        active = {process.run.folder for process in self.running.values()}
        blocked = {run.folder for run in self.waiting} | active | set(self._lost)
        now = time.monotonic()
        return [
            run
            for run in self.waiting
            if not blocked.intersection(run.needs) and self._busy.get(run.folder, 0.0) <= now
        ]

    def _filled_twice(self, run: Run) -> int:
        """Return how many parts of the feature store a run would fill while another run is filling them."""
        filling = {part for process in self.running.values() for part in process.run.stored} - self._filled
        return len(run.stored & filling)

    def _collect(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if outcome.status == DONE:
            self._filled |= outcome.run.stored
        else:
            self._lost[outcome.run.folder] = outcome.run.name
        self._view.ended(outcome, self._progress())

    def _progress(self) -> list[tuple[Run, float]]:
        return [(process.run, process.seconds) for process in self.running.values()]
