"""Start runs quickly, by forking a process that has already imported the trainers, which takes seconds.

Only for this project's own train.py on CPU cores. With GPUs every run is a new process, because a process that has
used a GPU must not fork.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from typing import IO

_PRELOADED = "cocoamix.bench.engines.preload"


def can_fork(gpus: Sequence[str]) -> bool:
    """Return whether runs that use these GPUs may be forked on this system."""
    return not gpus and sys.platform == "linux"


class WarmChild:
    """A run in a forked process, with the part of subprocess.Popen's interface that the runner uses."""

    def __init__(self, arguments: Sequence[str], console: IO[bytes], environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_PRELOADED])
        # multiprocessing passes a Connection to a process that is not our child, and the lock with it.
        handed = connection.Connection(os.dup(console.fileno()), readable=False)
        self._process = context.Process(target=_run, args=(tuple(arguments), handed, dict(environment), os.getcwd()))
        self._process.start()
        handed.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while it is running."""
        return self._process.exitcode


def _run(arguments: Sequence[str], console: connection.Connection, environment: Mapping[str, str], folder: str) -> None:
    """Execute a run in the forked process as if it were a new process."""
    os.setsid()  # its own group, so that its children can be ended with it
    _end_with_parent()
    for stream in (1, 2):
        os.dup2(console.fileno(), stream)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    import torch

    from cocoamix.train import main

    if environment.get("OMP_NUM_THREADS", "").isdigit():  # OpenMP has read it already, before the fork
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    sys.exit(main(arguments))


def _end_with_parent() -> None:
    """End the run if the runner is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
