"""One run as a process: start, watch and stop it, and find out why it failed."""

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from cocoamix.bench.ledger import BLOCKED, FINISHED, Ledger, files_to_delete, load_results
from cocoamix.bench.runs import Run
from cocoamix.bench.stamp import CONSOLE, TRAIN_LOCK, read_stamp, seconds_of
from cocoamix.errors import UserError
from cocoamix.run.results import RESULTS, ResultsError

from .warm import WarmChild

DONE, FAILED, LEFT_OUT = "done", "failed", "left out"  # an outcome can also be BLOCKED
ELSEWHERE = "by another process"  # the reason given for a run that another runner executed
_PATIENCE = 10.0  # seconds that a process has to end before it is killed
_POLL = 0.05  # seconds
_LONGEST_REASON = 400


class BusyError(UserError):
    """Another process is working in the output folder of a run."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Run
    status: str  # done, failed, left out, or blocked by the contents of its folder
    reason: str = ""
    seconds: float = 0.0
    accuracy: float = 0.0


def print_line(text: str) -> None:
    """Print a line without buffering."""
    print(text, flush=True)


def begin(
    run: Run,
    command: Sequence[str],
    ledger: Ledger,
    environment: Mapping[str, str],
    warm: bool = False,
    say: Callable[[str], None] = print_line,
) -> Process | Outcome:
    """Start a run, or return its outcome if it is blocked or another runner has finished it.

    Args:
        run: The run.
        command: The command of a run, without its arguments.
        ledger: Decides whether the run is due, and records its start.
        environment: Environment variables that are added to those of this process.
        warm: Whether to fork a process that has already imported the trainers. Only for this project's own train.py.
        say: Prints a line.

    Raises:
        BusyError: Another process is working in the folder.
        UserError: The run cannot be started.
    """
    console = _open_console(run)
    try:
        state = ledger.state(run)
        if state.kind == FINISHED:
            outcome = finished_outcome(run)
        elif state.kind == BLOCKED:
            outcome = Outcome(run, BLOCKED, state.reason)
        else:
            _make_room(run, ledger, console, say)
            return Process(run, command, ledger, environment, console, warm)
    except OSError as error:
        console.close()
        raise UserError(f"{run.name} cannot be started: {error}.") from error
    except BaseException:
        console.close()
        raise
    console.close()
    return outcome


def finished_outcome(run: Run) -> Outcome:
    """Return the outcome of a run that another process has finished."""
    seconds = seconds_of(read_stamp(run.folder)) or 0.0
    return Outcome(run, DONE, ELSEWHERE, seconds, load_results(run.folder).metrics["accuracy"])


class Process:
    """The process of a run.

    Args:
        run: The run.
        command: The command of a run, without its arguments.
        ledger: Records the start and the end of the run.
        environment: Environment variables that are added to those of this process.
        console: The file for its output, open and locked.
        warm: See `begin`.
    """

    def __init__(
        self,
        run: Run,
        command: Sequence[str],
        ledger: Ledger,
        environment: Mapping[str, str],
        console: IO[bytes],
        warm: bool = False,
    ) -> None:
        self.run = run
        self.started = time.monotonic()
        self._ledger, self._console = ledger, console
        ledger.stamp_begin(run)
        line = [*command, *run.arguments]
        console.write(f"$ {shlex.join(line)}\n".encode())
        console.flush()
        self._begin = console.tell()
        variables = {**os.environ, **environment}
        self._child: subprocess.Popen[bytes] | WarmChild = (
            WarmChild(run.arguments, console, variables) if warm else _spawn(line, console, variables)
        )

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def poll(self) -> Outcome | None:
        """Return how the run ended, or None while it is running."""
        status = self._child.poll()
        if status is None:
            return None
        try:
            return self._outcome(status)
        finally:
            self._console.close()  # releases the lock last, because another runner may be waiting for it

    def _outcome(self, status: int) -> Outcome:
        if status != 0:
            return Outcome(self.run, FAILED, self._why(status), self.seconds)
        try:
            results = load_results(self.run.folder)
        except ResultsError as error:
            written = (self.run.folder / RESULTS).exists()
            problem = str(error) if written else f"wrote no {RESULTS}"
            return Outcome(self.run, FAILED, f"it exited without an error, but {problem}", self.seconds)
        self._ledger.stamp_end(self.run, round(self.seconds, 1))
        return Outcome(self.run, DONE, seconds=self.seconds, accuracy=results.metrics["accuracy"])

    def wait(self) -> Outcome:
        """Wait for the end of the run."""
        while (outcome := self.poll()) is None:
            time.sleep(_POLL)
        return outcome

    def stop(self) -> None:
        """Ask the run to end. Its saved state is consistent at any moment, so the next start can resume it."""
        self._signal(signal.SIGTERM)

    def end(self) -> None:
        """Wait until a run that was asked to stop has ended; kill it if that takes too long."""
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

    def _why(self, status: int) -> str:
        if status < 0:
            name = signal.Signals(-status).name
            hint = " (the kernel sends it when memory runs out)" if status == -signal.SIGKILL else ""
            return f"it was killed by {name}{hint}"
        with (self.run.folder / CONSOLE).open("rb") as file:
            file.seek(self._begin)
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        reason = (errors or lines or [f"it exited with status {status} and printed nothing"])[-1]
        return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."


def _make_room(run: Run, ledger: Ledger, console: IO[bytes], say: Callable[[str], None]) -> None:
    """Delete the old files of a repeated run, after a message, or rename its old results."""
    _refuse_if_training(run)
    why = ledger.why_deleted(run)
    if not why:
        ledger.rename_results(run)
        return
    say(f"{run.name}: deleting the contents of {run.folder} ({why}).")
    for path in files_to_delete(run.folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    console.truncate(0)


def _open_console(run: Run) -> IO[bytes]:
    """Open the console of a run and lock it for as long as this process or the run itself lives."""
    try:
        run.folder.mkdir(parents=True, exist_ok=True)
        console = (run.folder / CONSOLE).open("ab")
    except OSError as error:
        raise UserError(f"{run.folder} cannot be written: {error.strerror}.") from error
    if not _lock(console):
        console.close()
        raise BusyError(f"Another process is working in {run.folder}. Wait for it to finish, or stop it.")
    return console


def _refuse_if_training(run: Run) -> None:
    """Raise BusyError if a train.py started without the runner is working in the folder."""
    with contextlib.suppress(FileNotFoundError), (run.folder / TRAIN_LOCK).open("r+b") as lock:
        if not _lock(lock):
            raise BusyError(f"Another process is working in {run.folder}. Wait for it to finish, or stop it.")


def _lock(file: IO[bytes]) -> bool:
    """Lock a file until it is closed; return False if another process holds it."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass  # a system or a file system without locks
    return True


def _spawn(line: Sequence[str], console: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=console,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # its own group, so that its children can be ended with it
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )


def _has_ended(child: subprocess.Popen[bytes] | WarmChild) -> bool:
    """Return whether a process has ended, without Popen's lock, on which a signal handler could deadlock."""
    if isinstance(child, WarmChild):
        return child.poll() is not None
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # ended and already reaped
        return True


def _end_with_parent() -> None:
    """Let the kernel end the run if the runner is killed."""
    _C.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


# Loaded before a fork, because it may not be safe after one.
_C = ctypes.CDLL(None) if sys.platform == "linux" else ctypes.pythonapi
