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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

from cocoamix.errors import UserError, run_command
from cocoamix.io import steps
from cocoamix.io.files import write_json
from cocoamix.run.arguments import STOPPED
from cocoamix.run.lock import LOCK, FolderLock
from cocoamix.run.results import RESULTS
from cocoamix.run.state import STAMP, hash_model, read_stamp

from .runs import Run

CONSOLE = "console.txt"  # the output of a run, of all its starts
_LOG = "log.txt"
_PATIENCE = 10.0  # seconds until a killed process is gone; longer if the disk hangs
_LONGEST_REASON = 400


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


def can_fork(gpus: tuple[str, ...]) -> bool:
    """Return whether runs may be forked from a warm process: a process that has used a GPU must not fork."""
    return not gpus and sys.platform == "linux"


def warm_up() -> None:
    """Start the process that runs are forked from. Its imports take seconds, meanwhile this process goes on."""
    from multiprocessing import forkserver

    multiprocessing.get_context("forkserver").set_forkserver_preload(["cocoamix.experiments.preload"])
    forkserver.ensure_running()


class Worker:
    """The process of a run, as the runner sees it."""

    def __init__(self, task: Task, fork: bool) -> None:
        self.run, self.began = task.run, time.monotonic()
        self.step: dict[str, Any] = {}  # what the run is doing
        context: Any = multiprocessing.get_context("forkserver" if fork else "spawn")
        if fork:
            warm_up()
        reader, writer = context.Pipe(duplex=False)
        with _open_console(task.run.folder) as console, writer:
            # multiprocessing hands a Connection to a process that is not our child, and the file with it.
            handed = connection.Connection(os.dup(console.fileno()), readable=False)
            with handed:
                self._process = context.Process(
                    target=_work, args=(task, handed, writer, dict(os.environ), os.getcwd())
                )
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
        """Return why the run failed: the signal that ended it, or the last error in its console."""
        if status < 0:
            hint = " (the kernel sends it when memory runs out)" if status == -signal.SIGKILL else ""
            return f"it was killed by {signal.Signals(-status).name}{hint}"
        return last_error(self.run.folder) or f"it exited with status {status} and printed nothing"

    def stop(self) -> None:
        """Kill the run and its children. Its files are consistent at any moment, so the next start can resume it."""
        for kill in (os.killpg, os.kill):  # a process that has just been forked has no group yet
            with suppress(ProcessLookupError):
                kill(self._process.pid, signal.SIGKILL)
        self._process.join(_PATIENCE)


def _open_console(folder: Path) -> Any:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / CONSOLE).open("ab")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}.") from error


def last_error(folder: Path) -> str:
    """Return the last error, or else the last line, that the last start of a run has printed."""
    text = (folder / CONSOLE).read_bytes().decode("utf-8", "replace")
    _, _, printed = f"\n{text}".rpartition("\n$ ")[2].partition("\n")  # without the command
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    reason = (errors or lines or [""])[-1]
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."


# ---------------------------------------------------------------------- in the process of the run


def _work(task: Task, console: Any, writer: Any, environment: Mapping[str, str], folder: str) -> None:
    """Execute a run and exit with its status."""
    os.setsid()  # its own group, so that its children can be ended with it
    _end_with_parent()
    if (
        "SLURM_JOB_ID" in environment
    ):  # Slurm sends it before it preempts a job; submitit asks for the end in its own way
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for stream in (1, 2):
        os.dup2(console.fileno(), stream)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
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

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _run(task: Task) -> None:
    began = time.monotonic()
    prepare(task)
    print(f"$ {task.run.command()}", flush=True)
    import torch

    from cocoamix import train

    # A number that the user has set is kept. The library uses one thread for small models, unless the user set one.
    chosen = os.environ.get("OMP_NUM_THREADS", "")
    torch.set_num_threads(int(chosen) if chosen.isdigit() and int(chosen) else task.threads)
    train.run(task.run.arguments(), task.run.settings)
    write_json(task.run.folder / STAMP, {**read_stamp(task.run.folder), "seconds": round(time.monotonic() - began, 1)})


def prepare(task: Task) -> None:
    """Delete what must be repeated, and record the start. Nothing is deleted in the folder of another active run."""
    run, before = task.run, read_stamp(task.run.folder)
    with FolderLock(run.folder):
        if task.repeat and before.get("start") != task.start:
            empty(run.folder)
        for folder in task.dependents:
            set_aside(folder)
        models = [hash_model(folder) for folder in run.needs]
        content = {"command": run.command(), "start": task.start, "code": task.code, "models": models}
        write_json(run.folder / STAMP, {**content, "seconds": None})


def empty(folder: Path) -> None:
    """Delete the contents of the folder of a run. The files that its process holds open stay, the console empty."""
    for path in folder.iterdir():
        if path.name == CONSOLE:
            os.truncate(path, 0)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def set_aside(folder: Path) -> None:
    """Rename the results and logs of a run whose model is trained again, so that no report shows them."""
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
    for path in [folder / RESULTS, *folder.glob(f"{_LOG}*")] if (folder / RESULTS).is_file() else ():
        path.rename(path.with_name(f"{path.name}-{stamp}-before"))
