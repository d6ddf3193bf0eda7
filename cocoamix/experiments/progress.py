"""Show the progress of a plan: on a terminal a bar and a line for each running job, in a log plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tqdm import tqdm

from .runs import Run

_MOST_JOBS = 8  # with a separate line on a terminal
_REFRESH = 0.5  # seconds between two updates of the lines of running jobs

Running = Sequence[tuple[Run, float, Mapping[str, Any]]]  # runs, seconds since they started, what they do


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
        seen = next((self._seen[kind] for kind in _kinds(run) if kind in self._seen), None)
        return sum(seen) / len(seen) if seen else None

    def remaining(self, waiting: Iterable[Run], running: Running, at_once: int) -> float | None:
        """Estimate the remaining seconds with `at_once` runs at a time; None if a run cannot be estimated."""
        left = [(self.estimate(run), 0.0) for run in waiting] + [(self.estimate(run), past) for run, past, _ in running]
        seconds = [max(0.0, whole - past) for whole, past in left if whole is not None]
        if len(seconds) < len(left):
            return None
        return max(sum(seconds) / at_once, max(seconds, default=0.0))


def _kinds(run: Run) -> list[object]:
    """Return keys of runs that take about as long, the most similar first."""
    return [(run.method, run.dataset, run.trains), (run.method, run.trains), run.trains, ""]


class Progress:
    """Shows the progress of a plan.

    Args:
        runs: The runs to execute.
        pace: Estimates the remaining time.
        at_once: The number of runs at a time. None if it is unknown, as on a cluster; then no time is estimated.
    """

    def __init__(self, runs: Sequence[Run], pace: Pace, at_once: int | None) -> None:
        self._waiting = {run.folder: run for run in runs}
        self._total, self._failed, self._shown = len(runs), 0, 0.0
        self._pace, self._at_once = pace, at_once
        self._bar: tqdm | None = None
        self._jobs: list[tqdm] = []  # a line for each running job
        if sys.stderr.isatty():
            tqdm.monitor_interval = 0  # no second thread, because this one starts processes
            shape = "{n_fmt}/{total_fmt} runs |{bar}| {elapsed}{postfix}"
            self._bar = tqdm(total=self._total, bar_format=shape, leave=False)

    def tick(self, running: Running) -> None:
        """Update the bar and the lines of the running jobs."""
        if self._bar is None or time.monotonic() - self._shown < _REFRESH:
            return
        self._shown = time.monotonic()
        failed = f", {self._failed} failed" if self._failed else ""
        self._bar.set_postfix_str(f"{len(running)} running{failed}{self._time_left(running)}")
        texts = [f"  {run.name}: {describe_step(step)}, {duration(past)}" for run, past, step in running]
        if len(texts) > _MOST_JOBS:
            texts[_MOST_JOBS - 1 :] = [f"  and {len(texts) - _MOST_JOBS + 1} more"]
        while len(self._jobs) < len(texts):
            self._jobs.append(tqdm(bar_format="{desc}", position=len(self._jobs) + 1, leave=False))
        for number, line in enumerate(self._jobs):
            line.set_description_str(texts[number] if number < len(texts) else "")

    def started(self, run: Run) -> None:
        """Print in a log that a run has started; a terminal shows it below the bar."""
        if self._bar is None:
            self.say(f"{run.name}: started")

    def done(self, run: Run, seconds: float, accuracy: float, running: Running) -> None:
        """Show the result of a run."""
        self._pace.record(run, seconds)
        self._ended(run, f"{accuracy:.2f} % ({duration(seconds)})", running)

    def failed(self, run: Run, status: str, reason: str, running: Running) -> None:
        """Show that a run has no result."""
        self._failed += 1
        self._ended(run, f"{status.upper()}: {reason}", running)

    def _ended(self, run: Run, result: str, running: Running) -> None:
        del self._waiting[run.folder]
        if self._bar is not None:
            self._bar.update()
        number = self._total - len(self._waiting)
        left = self._time_left(running) if self._bar is None else ""
        self.say(f"[{number:{len(str(self._total))}}/{self._total}] {run.name}: {result}{left}")

    def _time_left(self, running: Running) -> str:
        if self._at_once is None or not self._waiting:
            return ""
        active = {run.folder for run, _, _ in running}
        waiting = [run for run in self._waiting.values() if run.folder not in active]
        left = self._pace.remaining(waiting, running, self._at_once)
        return "" if left is None else f", about {duration(left)} left"

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stdout)
        else:
            print(line, flush=True)

    def close(self) -> None:
        """Remove the bar and the lines of the jobs."""
        for line in (*reversed(self._jobs), self._bar):
            if line is not None:
                line.close()


def describe_step(step: Mapping[str, Any]) -> str:
    """Return what a running job is doing, from its last message."""
    if "evaluates" in step:
        return f"evaluating ({step['evaluates']})"
    if "epoch" not in step:
        return "starting"
    session = f"session {step['session']}, " if step.get("session") is not None else ""
    return f"{session}epoch {step['epoch']}/{step['epochs']}"


def duration(seconds: float) -> str:
    """Return a duration as text, such as 12 s, 3 min or 2 h 05 min."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"
