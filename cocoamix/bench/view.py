"""Show the progress of a plan: on a terminal a bar and a line for each running job, in a log plain lines."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Sequence

from tqdm import tqdm

from .engines.process import DONE, Outcome
from .runs import Run
from .stamp import CONSOLE

_MOST_JOBS = 8  # with a separate line on a terminal
_REFRESH = 1.0  # seconds between two reads of the consoles of running jobs
_TAIL = 4096  # bytes at the end of a console
_EPOCH = re.compile(rb"^epoch \[(\d+)/(\d+)\]", re.MULTILINE)
_EVALUATION = re.compile(rb"^Evaluate on the \*(\w+)\* set", re.MULTILINE)


class Pace:
    """Estimates the remaining time from finished runs of the same kind."""

    def __init__(self) -> None:
        self._seen: dict[object, list[float]] = {}

    def record(self, run: Run, seconds: float) -> None:
        """Record how long a successful run took."""
        for kind in _kinds(run):
            self._seen.setdefault(kind, []).append(seconds)

    def estimate(self, run: Run) -> float | None:
        """Estimate the duration of a run from the most similar runs so far; None if there are none."""
        found = next((self._seen[kind] for kind in _kinds(run) if kind in self._seen), None)
        return sum(found) / len(found) if found else None

    def remaining(self, waiting: Iterable[Run], running: Iterable[tuple[Run, float]], at_once: int) -> float | None:
        """Estimate the remaining seconds; None if a run cannot be estimated.

        Args:
            waiting: The runs that have not started.
            running: The running runs, each with the seconds since it started.
            at_once: The number of runs at a time.
        """
        whole = [(self.estimate(run), 0.0) for run in waiting] + [(self.estimate(run), past) for run, past in running]
        if any(one is None for one, _ in whole):
            return None
        left = [max(0.0, (one or 0.0) - past) for one, past in whole]
        return max(sum(left) / at_once, max(left, default=0.0))


def _kinds(run: Run) -> list[object]:
    """Return keys of runs that take about as long, the most similar first."""
    return [(run.method, run.dataset, run.trains), (run.method, run.trains), run.trains, ""]


def step_of(run: Run) -> str:
    """Return what a running job is doing, according to the end of its console."""
    try:
        with (run.folder / CONSOLE).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            tail = file.read().rpartition(b"\n$ ")[2]  # after the command of the last start
    except OSError:
        tail = b""
    epochs, evaluations = list(_EPOCH.finditer(tail)), list(_EVALUATION.finditer(tail))
    if evaluations and (not epochs or evaluations[-1].start() > epochs[-1].start()):
        return f"evaluating ({evaluations[-1][1].decode()})"
    return f"epoch {int(epochs[-1][1])}/{int(epochs[-1][2])}" if epochs else "starting"


class View:
    """Shows the progress of a plan.

    Args:
        runs: The runs to execute.
        pace: Estimates the remaining time.
        at_once: The number of runs at a time. None if it is unknown, as on a cluster; then no time is estimated.
    """

    def __init__(self, runs: Sequence[Run], pace: Pace, at_once: int | None) -> None:
        self.outcomes: list[Outcome] = []  # so far
        self._waiting = list(runs)
        self._total, self._failed = len(runs), 0
        self._pace, self._at_once = pace, at_once
        self._left: float | None = None
        self._bar: tqdm | None = None
        self._jobs: list[tqdm] = []  # a line for each running job
        self._looked = 0.0
        if sys.stderr.isatty():
            tqdm.monitor_interval = 0  # no second thread, because this one starts processes
            shape = "{n_fmt}/{total_fmt} runs |{bar}| {elapsed}{postfix}"
            self._bar = tqdm(total=self._total, bar_format=shape, leave=False)

    def tick(self, running: Iterable[tuple[Run, float]]) -> None:
        """Show the remaining time and the running jobs, given as runs and the seconds since they started."""
        running = list(running)
        active = {run.folder for run, _ in running}
        waiting = [run for run in self._waiting if run.folder not in active]
        if self._at_once is not None:
            self._left = self._pace.remaining(waiting, running, self._at_once)
        if self._bar is not None:
            failed = f", {self._failed} failed" if self._failed else ""
            self._bar.set_postfix_str(f"{len(running)} running{failed}{self._eta()}")
            self._show_jobs(running)

    def _show_jobs(self, running: Sequence[tuple[Run, float]]) -> None:
        """List the running jobs below the bar, with what each is doing and how long it has been running."""
        if time.monotonic() - self._looked < _REFRESH:
            return
        self._looked = time.monotonic()
        texts = [f"  {run.name}: {step_of(run)}, {duration(past)}" for run, past in running]
        if len(texts) > _MOST_JOBS:
            texts[_MOST_JOBS - 1 :] = [f"  and {len(texts) - _MOST_JOBS + 1} more"]
        while len(self._jobs) < len(texts):
            self._jobs.append(tqdm(bar_format="{desc}", position=len(self._jobs) + 1, leave=False))
        for number, line in enumerate(self._jobs):
            line.set_description_str(texts[number] if number < len(texts) else "")

    def started(self, run: Run) -> None:
        """Print in a log that a run has started; a terminal shows it below the bar."""
        self._looked = 0.0
        if self._bar is None:
            self.say(f"{run.name}: started")

    def _eta(self) -> str:
        return "" if self._left is None or not self._waiting else f", about {duration(self._left)} left"

    def ended(self, outcome: Outcome, running: Iterable[tuple[Run, float]]) -> None:
        """Show how a run ended."""
        self.outcomes.append(outcome)
        self._waiting = [run for run in self._waiting if run.folder != outcome.run.folder]
        if outcome.status == DONE:
            if not outcome.reason:  # otherwise another process executed it
                self._pace.record(outcome.run, outcome.seconds)
            result = f"{outcome.accuracy:.2f} % ({outcome.reason or duration(outcome.seconds)})"
        else:
            self._failed += 1
            result = f"{outcome.status.upper()}: {outcome.reason}"
        if self._bar is not None:
            self._bar.update()
        self.tick(running)
        number = self._total - len(self._waiting)
        tail = self._eta() if self._bar is None else ""
        line = f"[{number:{len(str(self._total))}}/{self._total}] {outcome.run.name}: {result}{tail}"
        self.say(line)

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stdout)
        else:
            print(line, flush=True)

    def close(self) -> None:
        """Remove the bar and the lines of the jobs."""
        for one in (*reversed(self._jobs), self._bar):
            if one is not None:
                one.close()


def duration(seconds: float) -> str:
    """Return a duration as text, such as 12 s, 3 min or 2 h 05 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"
