"""One run as a process: started, watched, stopped, and asked why it failed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from cocoamix.bench.ledger import Ledger, load_results, write_stamp
from cocoamix.bench.runs import Run
from cocoamix.errors import UserError
from cocoamix.run.results import RESULTS, ResultsError

from .warm import WarmChild

CONSOLE = "console.txt"  # in a run's folder: what train.py printed, of every start
DONE, FAILED, LEFT_OUT = "done", "failed", "left out"
_PATIENCE = 10.0  # seconds that a process is given to end before it is killed
_POLL = 0.05  # seconds
_LONGEST_REASON = 400


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Run
    status: str  # done, failed, left out
    reason: str = ""
    seconds: float = 0.0
    accuracy: float = 0.0


class Process:
    """A run that goes on.

    command: does one run when the run's arguments are appended. warm: that is our own train.py, and it may be forked
    from a process that has it imported.
    """

    def __init__(
        self, run: Run, command: Sequence[str], ledger: Ledger, environment: Mapping[str, str], warm: bool = False
    ) -> None:
        self.run = run
        self.started = time.monotonic()
        self._inputs = ledger.inputs(run)
        self._console = _open_console(run)
        try:
            if ledger.disposable and not ledger.is_stamped(run):
                self._empty_folder()
            write_stamp(run, self._inputs)
            line = [*command, *run.arguments]
            self._console.write(f"$ {shlex.join(line)}\n".encode())
            self._console.flush()
            self._begin = self._console.tell()
            variables = {**os.environ, **environment}
            self._child: subprocess.Popen[bytes] | WarmChild = (
                WarmChild(run.arguments, self._console, variables) if warm else _spawn(line, self._console, variables)
            )
        except OSError as error:
            self._console.close()
            raise UserError(f"{run.name} cannot be started: {error}.") from error

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def poll(self) -> Outcome | None:
        """Return how the run ended, or None while it goes on."""
        status = self._child.poll()
        if status is None:
            return None
        self._console.close()
        if status != 0:
            return Outcome(self.run, FAILED, self._why(status), self.seconds)
        try:
            results = load_results(self.run.folder)
        except ResultsError as error:
            written = (self.run.folder / RESULTS).exists()
            told = str(error) if written else f"wrote no {RESULTS}"
            return Outcome(self.run, FAILED, f"it ended without an error, but {told}", self.seconds)
        write_stamp(self.run, self._inputs, round(self.seconds, 1))
        return Outcome(self.run, DONE, seconds=self.seconds, accuracy=results.metrics["accuracy"])

    def wait(self) -> Outcome:
        """Wait for the end of the run."""
        while (outcome := self.poll()) is None:
            time.sleep(_POLL)
        return outcome

    def stop(self) -> None:
        """Ask the run to end: what it has saved is whole at any moment, so that the next start goes on from it."""
        self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Wait for the end of a run that was asked to stop, and kill it if it does not."""
        if not self._is_gone(_PATIENCE):
            self._signal(signal.SIGKILL)
            self._is_gone(_PATIENCE)
        self._child.poll()
        self._console.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)

    def _is_gone(self, patience: float) -> bool:
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if _has_ended(self._child):
                return True
            time.sleep(_POLL)
        return False

    def _empty_folder(self) -> None:
        """Delete what other settings or other code left, but for the console, which is locked."""
        for path in self.run.folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != CONSOLE:
                path.unlink()
        self._console.truncate(0)

    def _why(self, status: int) -> str:
        if status < 0:
            name = signal.Signals(-status).name
            hint = " (by the system, if memory ran out)" if status == -signal.SIGKILL else ""
            return f"it was ended by {name}{hint}"
        with (self.run.folder / CONSOLE).open("rb") as file:
            file.seek(self._begin)
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        said = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        reason = (said or lines or [f"it ended with status {status} and said nothing"])[-1]
        return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."


def _open_console(run: Run) -> IO[bytes]:
    """Open the console of a run and lock it, for as long as this process or the run itself lives."""
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
        console = (run.folder / CONSOLE).open("ab")
    except OSError as error:
        raise UserError(f"{run.folder} cannot be written: {error.strerror}.") from error
    try:
        import fcntl

        fcntl.flock(console, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        console.close()
        raise UserError(f"Another process is at work in {run.folder}. Wait for it, or end it.") from None
    except (ImportError, OSError):
        pass  # a system or a file system without locks
    return console


def _spawn(line: Sequence[str], console: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=console,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # a group of its own, to be ended with all its children
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )


def _has_ended(child: subprocess.Popen[bytes] | WarmChild) -> bool:
    """Say whether a process has ended, without Popen's lock, which a signal handler may find taken for good."""
    if isinstance(child, WarmChild):
        return child.poll() is not None
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # ended, and seen to
        return True


def _end_with_parent() -> None:
    """Let the kernel end the run when the runner is killed without a chance to do it."""
    _C.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


_C = ctypes.CDLL(None) if sys.platform == "linux" else ctypes.pythonapi  # looked up before a fork, not after it
