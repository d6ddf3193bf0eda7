"""One run in a process of its own. On the CPU it is forked from a process that has torch loaded; else it is new."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

from cocoamix.errors import run_command
from cocoamix.io import steps
from cocoamix.io.files import write_json
from cocoamix.run.arguments import STOPPED
from cocoamix.run.lock import LOCK, FolderLock
from cocoamix.run.results import RESULTS
from cocoamix.run.state import STAMP, hash_model, read_stamp

from .runs import Run

CONSOLE = "console.txt"  # the output of a run, of all its starts


@dataclass(frozen=True)
class Task:
    """A run, and what its process must know besides."""

    run: Run
    start: str  # names this start of the plan; a job that a cluster starts again keeps it
    repeat: bool = False  # delete what an earlier start has left in the folder
    code: str = ""  # digest of the code, if it is recorded
    dependents: tuple[Path, ...] = ()  # folders of the runs that use the model
    threads: int = 1
    gpu: str | None = None  # CUDA_VISIBLE_DEVICES; None leaves it as it is


def can_fork(gpus: Sequence[str | None]) -> bool:
    """Return whether runs may be forked from a warm process: a process that has used a GPU must not fork."""
    return not any(gpus) and sys.platform == "linux"


def warm_up() -> None:
    """Start the process that runs are forked from. Its imports take seconds, while this process continues."""
    from multiprocessing import forkserver

    multiprocessing.get_context("forkserver").set_forkserver_preload(["cocoamix.experiments.preload"])
    forkserver.ensure_running()


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
        stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
        for other in task.dependents:  # a report must not show them: their model is trained again
            for path in [*other.glob(RESULTS), *other.glob("log.txt*")]:
                if not path.name.endswith("-before"):
                    path.rename(f"{path}-{stamp}-before")
        models = [hash_model(other) for other in task.run.needs]
        content = {"command": task.run.command(), "start": task.start, "code": task.code, "models": models}
        write_json(folder / STAMP, {**content, "seconds": None})


class Worker:
    """The process of a run, as the runner sees it."""

    def __init__(self, task: Task, fork: bool) -> None:
        self.run, self.began = task.run, time.monotonic()
        self.step: dict[str, Any] = {}  # what the run is doing
        prepare(task)
        context: Any = multiprocessing.get_context("forkserver" if fork else "spawn")
        if fork:
            warm_up()
        reader, writer = context.Pipe(duplex=False)
        with writer:
            self._process = context.Process(target=_work, args=(task, writer, dict(os.environ)))
            self._process.start()
        os.set_blocking(reader.fileno(), False)
        self._steps, self._rest = reader, b""

    @property
    def sentinel(self) -> int:
        """What becomes ready when the process ends."""
        return int(self._process.sentinel)

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def poll(self) -> int | None:
        """Read what the run has sent; return its exit status, negative for a signal, or None while it is running."""
        with suppress(BlockingIOError, OSError):
            *lines, self._rest = (self._rest + os.read(self._steps.fileno(), 1 << 16)).split(b"\n")
            for line in lines:
                self.step = json.loads(line)
        status: int | None = self._process.exitcode
        return status

    def why(self, status: int) -> str:
        """Return why the run failed: the signal (SIGKILL if memory runs out), or the last error in its console."""
        return f"killed by {signal.Signals(-status).name}" if status < 0 else last_error(self.run.folder)

    def stop(self) -> None:
        """Kill the run and its children. Its files are consistent at any moment, so the next start can resume it."""
        if self._process.exitcode is None:
            for kill in (os.killpg, os.kill):  # a process that has just been forked has no group yet
                with suppress(ProcessLookupError):
                    kill(self._process.pid, signal.SIGKILL)
        self._process.join()


def last_error(folder: Path) -> str:
    """Return the last error, or else the last line, that the last start of a run has printed."""
    with suppress(OSError):
        text = (folder / CONSOLE).read_text(encoding="utf-8", errors="replace").rpartition("\n$ ")[2]
        lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]
        for line in [*[line for line in lines if line.startswith("error: ")][-1:], *lines[-1:]]:
            return f"{line.removeprefix('error: ')} ({folder / CONSOLE})"
    return "it printed nothing"


# ---------------------------------------------------------------------- in the process of the run


def _work(task: Task, writer: Any, environment: dict[str, str]) -> None:
    """Execute a run and exit with its status."""
    os.setsid()  # its own group, so that its children can be ended with it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if (
        "SLURM_JOB_ID" in environment
    ):  # Slurm sends it before it preempts a job; submitit asks for the end in its own way
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    console = os.open(task.run.folder / CONSOLE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(console, stream)
    os.environ.update(environment)
    if task.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = task.gpu
    os.set_blocking(writer.fileno(), False)
    os.environ[steps.VARIABLE] = str(writer.fileno())
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
