"""Execute runs on this machine: several processes at a time, on its cores or one on each GPU."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection
from pathlib import Path

from cocoamix.errors import UserError
from cocoamix.run.results import RESULTS, ResultsError
from cocoamix.run.state import read_results

from .progress import Progress, Running
from .runs import Run
from .worker import Task, Worker, can_fork

DONE, FAILED, LEFT_OUT = "done", "failed", "left out"  # an end can also be BLOCKED
_MOST_BY_DEFAULT = 8  # processes without GPUs; each holds a model in memory
_POLL = 0.1  # seconds


@dataclass(frozen=True)
class End:
    """How a run ended."""

    run: Run
    status: str  # done, failed, left out, or blocked by the contents of its folder
    reason: str = ""
    seconds: float = 0.0
    accuracy: float = 0.0


@dataclass(frozen=True)
class Slots:
    """How many processes run at a time, and what each may use."""

    jobs: int = 1
    threads: int = 1  # of each process
    gpus: tuple[str, ...] = ()
    hidden: bool = False  # hide the GPUs of the machine from the processes

    def gpu(self, slot: int) -> str | None:
        """Return the CUDA_VISIBLE_DEVICES of a slot; None to leave it as it is."""
        return self.gpus[slot % len(self.gpus)] if self.gpus else "" if self.hidden else None

    def describe(self) -> str:
        """Describe the slots in a few words."""
        return f"{self.jobs} at a time" + (f" on GPU {', '.join(self.gpus)}" if self.gpus else "")


def find_slots(jobs: int | None = None, gpus: Sequence[str] | None = None) -> Slots:
    """Return the slots of this machine.

    Args:
        jobs: The number of runs at a time; by default one per GPU, or per core if there is none.
        gpus: The GPUs to use: all if None, only the CPU if empty.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"-j is {jobs}; it must be at least 1.")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    chosen = tuple(_find_gpus() if gpus is None else gpus)
    at_once = jobs or len(chosen) or min(cores, _MOST_BY_DEFAULT)
    return Slots(at_once, max(1, cores // at_once), chosen, hidden=gpus is not None and not chosen)


def _find_gpus() -> list[str]:
    """Return the GPUs that may be used: those in CUDA_VISIBLE_DEVICES if it is set, else all that the driver lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    lines = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")] if not listed.returncode else []
    return [str(number) for number in range(len(lines))]


class LocalEngine:
    """Executes tasks on this machine, each after those that it needs.

    Args:
        tasks: The tasks, each after those that it needs.
        slots: How many processes run at a time.
        progress: Shows the progress.
        finished: Runs of the plan that are already finished.
    """

    def __init__(self, tasks: Sequence[Task], slots: Slots, progress: Progress, finished: Sequence[Run] = ()) -> None:
        self._waiting = list(tasks)
        self._workers: dict[int, Worker] = {}
        self._ends: list[End] = []
        self._slots, self._progress = slots, progress
        self._filled = {part for run in finished for part in run.stored}  # parts of the feature store
        self._lost: dict[Path, str] = {}  # runs without results: folders and names

    def execute(self) -> list[End]:
        """Execute the tasks, and return how they ended. Whatever ends this function ends the processes."""
        try:
            while self._waiting or self._workers:
                for slot, worker in list(self._workers.items()):
                    self._collect(slot, worker)
                self._leave_out()
                for slot in range(self._slots.jobs):
                    if slot not in self._workers:
                        self._start(slot)
                self._progress.tick(self._running())
                connection.wait([worker.sentinel for worker in self._workers.values()], _POLL)
        finally:
            for worker in self._workers.values():
                worker.stop()
        return self._ends

    def _running(self) -> Running:
        return [(worker.run, worker.seconds, worker.step) for worker in self._workers.values()]

    def _collect(self, slot: int, worker: Worker) -> None:
        status = worker.poll()
        if status is None:
            return
        del self._workers[slot]
        if status:
            worker.stop()  # its children, if it has left any
            self._end(End(worker.run, FAILED, worker.why(status), worker.seconds))
        else:
            self._end(end_of(worker.run, worker.seconds))

    def _leave_out(self) -> None:
        """Leave out the tasks whose models are missing."""
        for task in list(self._waiting):
            needed = [self._lost[folder] for folder in task.run.needs if folder in self._lost]
            if needed:
                self._waiting.remove(task)
                self._end(End(task.run, LEFT_OUT, f"it needs {needed[0]}"))

    def _start(self, slot: int) -> None:
        blocked = {task.run.folder for task in self._waiting} | {worker.run.folder for worker in self._workers.values()}
        ready = [task for task in self._waiting if not blocked.intersection(task.run.needs)]
        if not ready:
            return
        # Two runs that fill the same part of the feature store would encode its images twice.
        filling = {part for worker in self._workers.values() for part in worker.run.stored} - self._filled
        task = min(ready, key=lambda task: len(task.run.stored & filling))  # of equal ones, the first
        self._waiting.remove(task)
        try:
            fork = can_fork(self._slots.gpus)
            self._workers[slot] = Worker(replace(task, gpu=self._slots.gpu(slot)), fork)
            self._progress.started(task.run)
        except (UserError, OSError) as error:
            self._end(End(task.run, FAILED, f"it cannot be started: {error}"))

    def _end(self, end: End) -> None:
        self._ends.append(end)
        if end.status == DONE:
            self._filled |= end.run.stored
            self._progress.done(end.run, end.seconds, end.accuracy, self._running())
        else:
            self._lost[end.run.folder] = end.run.name
            self._progress.failed(end.run, end.status, end.reason, self._running())


def end_of(run: Run, seconds: float) -> End:
    """Return the end of a run whose process exited without an error, according to its results."""
    try:
        return End(run, DONE, "", seconds, read_results(run.folder).metrics["accuracy"])
    except ResultsError as error:
        problem = str(error) if (run.folder / RESULTS).exists() else f"wrote no {RESULTS}"
        return End(run, FAILED, f"it exited without an error, but {problem}", seconds)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, unless they are ignored, as SIGHUP is under nohup."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
