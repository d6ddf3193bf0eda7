"""Execute runs on this machine: several processes at a time, on its cores or one on each GPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import connection

from cocoamix.errors import UserError
from cocoamix.run.results import ResultsError
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
    seconds: float | None = None


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_slots(jobs: int | None = None, gpus: Sequence[str] | None = None) -> list[str | None]:
    """Return the CUDA_VISIBLE_DEVICES of each process that runs at a time; None leaves it as it is.

    Args:
        jobs: The number of runs at a time; by default one per GPU, or per core if there is none.
        gpus: The GPUs to use: all if None, only the CPU if empty.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"-j is {jobs}; it must be at least 1.")
    chosen = [*(_find_gpus() if gpus is None else gpus)]
    at_once = jobs or len(chosen) or min(count_cores(), _MOST_BY_DEFAULT)
    devices: list[str | None] = [*chosen] or [None if gpus is None else ""]
    return [devices[slot % len(devices)] for slot in range(at_once)]


def _find_gpus() -> list[str]:
    """Return the GPUs that may be used: those in CUDA_VISIBLE_DEVICES if it is set, else all that the driver lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    with suppress(OSError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
        return [str(number) for number in range(listed.count("GPU "))]
    return []


class LocalEngine:
    """Executes tasks on this machine, each after those that it needs.

    Args:
        tasks: The tasks, each after those that it needs.
        slots: The CUDA_VISIBLE_DEVICES of each process that runs at a time.
        progress: Shows the progress.
    """

    def __init__(self, tasks: Sequence[Task], slots: Sequence[str | None], progress: Progress) -> None:
        self._waiting = list(tasks)
        self._workers: dict[int, Worker] = {}
        self._slots, self._progress = slots, progress
        self._ends: list[End] = []

    def execute(self) -> list[End]:
        """Execute the tasks, and return how they ended. Whatever ends this function ends the processes."""
        try:
            while self._waiting or self._workers:
                for slot in range(len(self._slots)):
                    if slot in self._workers:
                        self._collect(slot)
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

    def _collect(self, slot: int) -> None:
        worker = self._workers[slot]
        status = worker.poll()
        if status is not None:
            del self._workers[slot]
            worker.stop()  # its children, if it has left any
            reason = worker.why(status) if status else ""
            self._end(End(worker.run, FAILED, reason) if status else end_of(worker.run, worker.seconds))

    def _start(self, slot: int) -> None:
        """Start the next task that needs no other one, if there is any."""
        missing = {task.run.folder for task in self._waiting} | {worker.run.folder for worker in self._workers.values()}
        ready = [task for task in self._waiting if not missing.intersection(task.run.needs)]
        if not ready:
            return
        # Two runs that fill the same part of the feature store would encode its images twice.
        filling = {part for worker in self._workers.values() for part in worker.run.stored}
        task = min(ready, key=lambda task: len(task.run.stored & filling))  # of equal ones, the first
        self._waiting.remove(task)
        lost = [end.run for end in self._ends if end.status != DONE and end.run.folder in task.run.needs]
        if lost:
            self._end(End(task.run, LEFT_OUT, f"it needs {lost[0].name}"))
            return
        try:
            self._workers[slot] = Worker(replace(task, gpu=self._slots[slot]), can_fork(self._slots))
            self._progress.started(task.run)
        except (UserError, OSError) as error:
            self._end(End(task.run, FAILED, f"it cannot be started: {error}"))

    def _end(self, end: End) -> None:
        self._ends.append(end)
        self._progress.ended(end, self._running())


def end_of(run: Run, seconds: float | None = None) -> End:
    """Return the end of a run whose process exited without an error, according to its results."""
    try:
        return End(run, DONE, f"{read_results(run.folder).metrics['accuracy']:.2f} %", seconds)
    except ResultsError as error:
        return End(run, FAILED, f"it exited without an error, but {error}", seconds)
