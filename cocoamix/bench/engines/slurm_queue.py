"""The state of jobs according to squeue. It works on every cluster, whereas sacct needs an accounting database."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cocoamix.errors import UserError

_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED"),
    *("NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
# Reasons for waiting that resolve themselves.
_ORDINARY = {"None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime", "Dependency", "Prolog", "Cleaning"}
_LATE = 15.0  # seconds until a shared file system shows the result of an ended job
_SLOW = 60.0  # timeout of squeue and scancel, in seconds
UNKNOWN = "not known to Slurm any more"


@dataclass(frozen=True)
class Entry:
    """A job in the queue, or one that left it minutes ago."""

    state: str
    reason: str = ""  # why it waits, in Slurm's words
    script: Path = Path()

    @property
    def is_over(self) -> bool:
        """Whether the job has ended."""
        return self.state in _ENDED or self.state == UNKNOWN


def ask(numbers: Iterable[str]) -> dict[str, Entry] | None:
    """Return the jobs with these numbers (12, or 12_0 in an array) that Slurm knows; None if squeue fails."""
    main = sorted({number.split("_")[0] for number in numbers})
    if not main:
        return {}
    # -r: a line for each job of an array. -t all: also jobs that have just ended.
    command = ["squeue", "--noheader", "-r", "-t", "all", "-o", "%i|%T|%r|%o", "-j", ",".join(main)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SLOW)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode:
        return {} if "Invalid job id" in answer.stderr else None
    rows = [line.strip().split("|", 3) for line in answer.stdout.splitlines()]
    return {row[0]: Entry(row[1], row[2], Path(row[3])) for row in rows if len(row) == 4}


def cancel(numbers: Sequence[str], patience: float) -> None:
    """Cancel jobs, and wait for up to `patience` seconds until they have ended."""
    if not numbers:
        return
    try:
        # In its own session, so that a second Ctrl-C reaches the runner and not this process.
        subprocess.run(["scancel", *numbers], capture_output=True, timeout=_SLOW, start_new_session=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"The jobs {', '.join(numbers)} could not be cancelled: {error}") from error
    end = time.monotonic() + patience
    while time.monotonic() < end:
        entries = ask(numbers)
        if entries is not None and all(number not in entries or entries[number].is_over for number in numbers):
            return
        time.sleep(0.5)


class Watch:
    """Tracks which jobs have ended, and reports why others are waiting.

    Args:
        numbers: The numbers of the jobs.
        every: The seconds between two queries, to spare the cluster's scheduler.
        say: Prints a line.
    """

    def __init__(self, numbers: Iterable[str], every: float, say: Callable[[str], None]) -> None:
        self._numbers = list(numbers)
        self._every, self._say = every, say
        self._asked = -every
        self._entries: dict[str, Entry] = {}
        self._over: dict[str, float] = {}  # ended jobs, and when that was noticed
        self._said: set[str] = set()

    def look(self) -> None:
        """Query Slurm if the last query is long enough ago. If the query fails, nothing changes."""
        now = time.monotonic()
        if now - self._asked < self._every:
            return
        self._asked = now
        entries = ask(self._numbers)
        if entries is None:
            return
        self._entries = {number: entries.get(number, Entry(UNKNOWN)) for number in self._numbers}
        over = [number for number, entry in self._entries.items() if entry.is_over]
        self._over = {number: self._over.get(number, now) for number in over}
        self._report_reasons()

    def is_over(self, number: str) -> bool:
        """Return whether a job ended so long ago that its result, if missing, will not appear any more."""
        return number in self._over and time.monotonic() - self._over[number] >= _LATE

    def state(self, number: str) -> str:
        """Return the last known state of a job."""
        return self._entries[number].state if number in self._entries else UNKNOWN

    def _report_reasons(self) -> None:
        """Report each unusual reason once. Some, such as more cores than a node has, never resolve."""
        waiting = [entry.reason for entry in self._entries.values() if entry.state == "PENDING"]
        for reason in sorted(set(waiting) - _ORDINARY - self._said):
            self._said.add(reason)
            self._say(f"{waiting.count(reason)} of the jobs are waiting; Slurm gives the reason {reason}")
