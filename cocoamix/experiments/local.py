"""Execute runs on this machine: several processes at a time, on its cores or one on each GPU.

Without GPUs, a run is forked from a process that has torch loaded; else it is a new process.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError, run_command
from cocoamix.io import steps
from cocoamix.io.files import write_json
from cocoamix.run.arguments import STOPPED
from cocoamix.run.lock import LOCK, FolderLock
from cocoamix.run.results import ResultsError
from cocoamix.run.state import STAMP, hash_model, read_results, read_stamp

from .progress import Progress
from .runs import Run

CONSOLE = "console.txt"  # the output of a run, of all its starts
DONE, FAILED, LEFT_OUT = "done", "failed", "left out"  # an end can also be BLOCKED
_MOST_BY_DEFAULT = 8  # processes without GPUs; each holds a model in memory
_POLL = 0.1  # seconds


@dataclass(frozen=True)
class Task:
    """A run, and what its process must know besides."""

    run: Run
    start: str  # names this start of the plan; a job that a cluster starts again keeps it
    repeat: bool = False  # delete what an earlier start has left in the folder
    code: str = ""  # digest of the code, if it is recorded
    threads: int = 1
    gpu: str | None = None  # CUDA_VISIBLE_DEVICES; None leaves it as it is


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
        gpus: The GPUs to use: by default those in CUDA_VISIBLE_DEVICES, else all that the driver lists.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"-j is {jobs}; it must be at least 1.")
    visible, devices = os.environ.get("CUDA_VISIBLE_DEVICES"), list(gpus or ())
    if gpus is None and visible is not None:
        devices = [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    elif gpus is None and shutil.which("nvidia-smi"):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
        devices = [str(number) for number in range(listed.count("GPU "))]
    at_once = jobs or len(devices) or min(count_cores(), _MOST_BY_DEFAULT)
    return [devices[slot % len(devices)] if devices else None if gpus is None else "" for slot in range(at_once)]


def can_fork(gpus: Sequence[str | None]) -> bool:
    """Return whether runs may be forked from a warm process: a process that has used a GPU must not fork."""
    return not any(gpus) and sys.platform == "linux"


def warm_up() -> None:
    """Start the process that runs are forked from. Its imports take seconds, while this process continues."""
    from multiprocessing import forkserver

    multiprocessing.get_context("forkserver").set_forkserver_preload(["cocoamix.experiments.preload"])
    forkserver.ensure_running()


def execute(tasks: Sequence[Task], slots: Sequence[str | None], progress: Progress) -> list[End]:
    """Execute tasks, one at a time in each of the slots, and return how they ended. Its end ends all processes."""
    waiting, ends = list(tasks), list[End]()
    workers: dict[int, Worker] = {}

    def record(end: End) -> None:
        ends.append(end)
        progress.ended(end, workers.values())

    try:
        while waiting or workers:
            for slot, gpu in enumerate(slots):
                if slot in workers and (end := workers[slot].end()):
                    del workers[slot]
                    record(end)
                while slot not in workers and (task := _next(waiting, [worker.run for worker in workers.values()])):
                    waiting.remove(task)
                    started = _start(replace(task, gpu=gpu), ends)
                    if isinstance(started, End):
                        record(started)
                    else:
                        workers[slot] = started
            progress.tick(workers.values())
            connection.wait([worker.process.sentinel for worker in workers.values()], _POLL)
    finally:
        for worker in workers.values():
            worker.stop()
    return ends


def _next(waiting: Sequence[Task], running: Sequence[Run]) -> Task | None:
    """Return the next task that needs no unfinished run, if there is any."""
    unfinished = {task.run.folder for task in waiting} | {run.folder for run in running}
    ready = [task for task in waiting if not unfinished.intersection(task.run.needs)]
    # Two runs that fill the same part of the feature store would encode its images twice.
    filling = {part for run in running for part in run.stored}
    return min(ready, key=lambda task: len(task.run.stored & filling), default=None)  # of equal ones, the first


def _start(task: Task, ends: Sequence[End]) -> Worker | End:
    lost = [end.run.name for end in ends if end.status != DONE and end.run.folder in task.run.needs]
    if lost:
        return End(task.run, LEFT_OUT, f"it needs {lost[0]}")
    try:
        return Worker(task)
    except (UserError, OSError) as error:
        return End(task.run, FAILED, f"it cannot be started: {error}")


class Worker:
    """The process of a run, as the runner sees it."""

    def __init__(self, task: Task) -> None:
        self.run, self._began = task.run, time.monotonic()
        self.step: dict[str, Any] = {}  # what the run is doing
        prepare(task)
        if fork := can_fork([task.gpu]):
            warm_up()
        context: Any = multiprocessing.get_context("forkserver" if fork else "spawn")
        self._steps, writer = context.Pipe(duplex=False)
        with writer:
            self.process = context.Process(target=_work, args=(task, writer, dict(os.environ)))
            self.process.start()
        os.set_blocking(self._steps.fileno(), False)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def end(self) -> End | None:
        """Read what the run does; return how it ended, or None while it is running."""
        with suppress(OSError, IndexError):  # nothing new; each line is written at once
            self.step = json.loads(os.read(self._steps.fileno(), 1 << 16).splitlines()[-1])
        status = self.process.exitcode
        if status is None:
            return None
        self.stop()  # its children, if it has left any
        if status == 0:
            return end_of(self.run, self.seconds)
        # SIGKILL if memory runs out.
        reason = f"killed by {signal.Signals(-status).name}" if status < 0 else last_error(self.run.folder)
        return End(self.run, FAILED, reason)

    def stop(self) -> None:
        """Kill the run and its children. Its files are consistent at any moment, so the next start can resume it."""
        if self.process.exitcode is None:
            for kill in (os.killpg, os.kill):  # a process that has just been forked has no group yet
                with suppress(ProcessLookupError):
                    kill(self.process.pid, signal.SIGKILL)
        self.process.join()


def prepare(task: Task) -> None:
    """Empty the folder of a run that is repeated, and record the start, unless another process works there."""
    folder, before = task.run.folder, read_stamp(task.run.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(folder):
        for path in folder.iterdir() if task.repeat and before.get("start") != task.start else ():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()
        models = {os.path.relpath(model, folder): hash_model(model) for model in task.run.needs}
        write_json(folder / STAMP, {"start": task.start, "code": task.code, "models": models, "seconds": None})


def end_of(run: Run, seconds: float | None = None) -> End:
    """Return the end of a run whose process exited without an error, according to its results."""
    try:
        return End(run, DONE, f"{read_results(run.folder).metrics['accuracy']:.2f} %", seconds)
    except ResultsError as error:
        return End(run, FAILED, f"it exited without an error, but {error}", seconds)


def last_error(folder: Path) -> str:
    """Return the last error, or else the last line, that the last start of a run has printed."""
    try:
        text = (folder / CONSOLE).read_text(encoding="utf-8", errors="replace").rpartition("\n$ ")[2]
    except OSError:
        text = ""
    lines = ["it printed nothing", *filter(None, map(str.strip, text.splitlines()[1:]))]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return f"{(errors or lines)[-1]} ({folder / CONSOLE})"


# ---------------------------------------------------------------------- in the process of the run


def _work(task: Task, writer: Any, environment: dict[str, str]) -> None:
    """Execute a run and exit with its status."""
    os.setsid()  # its own group, so that its children can be ended with it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if "SLURM_JOB_ID" in environment:  # Slurm sends it before a preemption; submitit asks for the end in its own way
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    console = os.open(task.run.folder / CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(console, stream)
    os.set_blocking(writer.fileno(), False)
    os.environ.update({**environment, steps.VARIABLE: str(writer.fileno())})
    if task.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = task.gpu
    sys.exit(run_command(partial(_run, task), STOPPED, work=True))


def _end_with_parent() -> None:
    """End the run if the runner is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.killpg(0, signal.SIGKILL)


def _run(task: Task) -> None:
    began = time.monotonic()
    print(f"\n$ {task.run.command()}", flush=True)
    import torch

    from cocoamix import train

    # A number that the user has set is kept. The library uses one thread for small models, unless the user set one.
    chosen = os.environ.get("OMP_NUM_THREADS", "")
    torch.set_num_threads(int(chosen) if chosen.isdigit() and int(chosen) else task.threads)
    train.run(task.run.arguments(), task.run.settings)
    write_json(task.run.folder / STAMP, {**read_stamp(task.run.folder), "seconds": round(time.monotonic() - began, 1)})
