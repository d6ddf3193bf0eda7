"""Runs that begin at once: forked from a process that has imported the trainers, which takes seconds.

For this project's own train.py on the cores of the machine. With GPUs every run is a process from scratch, because a
process that has touched a GPU must not fork.
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
    """Say whether runs may be forked on this system. gpus: those that they use."""
    return not gpus and sys.platform == "linux"


class WarmChild:
    """A run in a process of its own, with the part of subprocess.Popen that the runner uses."""

    def __init__(self, arguments: Sequence[str], console: IO[bytes], environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([_PRELOADED])
        # A Connection is what multiprocessing hands to a process that is no child of ours; with it goes the lock.
        handed = connection.Connection(os.dup(console.fileno()), readable=False)
        self._process = context.Process(target=_run, args=(tuple(arguments), handed, dict(environment), os.getcwd()))
        self._process.start()
        handed.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, or None while the run goes on."""
        return self._process.exitcode


def _run(arguments: Sequence[str], console: connection.Connection, environment: Mapping[str, str], place: str) -> None:
    """Do a run in the forked process as a process from scratch would."""
    os.setsid()  # a group of its own, to be ended with all its children
    _end_with_parent()
    for stream in (1, 2):
        os.dup2(console.fileno(), stream)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    import torch

    from cocoamix.train import main

    if environment.get("OMP_NUM_THREADS", "").isdigit():  # read by OpenMP when it was loaded, before this process
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    sys.exit(main(arguments))


def _end_with_parent() -> None:
    """End the run when the runner is killed without a chance to do it."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
