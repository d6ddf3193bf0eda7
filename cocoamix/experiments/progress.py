"""Show the progress of a plan: on a terminal a bar with the running jobs, in a log plain lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from .runs import Run

if TYPE_CHECKING:
    from .local import End

Running = Sequence[tuple[Run, float, Mapping[str, Any]]]  # runs, seconds since they started, what they do


class Progress:
    """Shows the progress of a plan.

    Args:
        runs: The runs to execute.
        at_once: The number of runs at a time. 0 if it is unknown, as on a cluster; then no time is estimated.
    """

    def __init__(self, runs: Sequence[Run], at_once: int) -> None:
        self._waiting = {run.folder: run for run in runs}
        self._total, self._at_once = len(runs), at_once
        self._seconds: dict[object, list[float]] = {}  # durations of runs of a kind
        tqdm.monitor_interval = 0  # no second thread, because this one starts processes
        shape = "{n_fmt}/{total_fmt} runs |{bar:20}| {elapsed}{postfix}"
        self._bar = tqdm(total=self._total, bar_format=shape, leave=False, mininterval=0.5, miniters=0, disable=None)

    def tick(self, running: Running) -> None:
        """Update the bar."""
        jobs = "; ".join(f"{run.name} {describe_step(step)}" for run, _, step in running)
        self._bar.set_postfix_str(f"{len(running)} running{self._time_left(running)}: {jobs}", refresh=False)
        self._bar.update(0)

    def started(self, run: Run) -> None:
        """Print in a log that a run has started; a terminal shows it in the bar."""
        if self._bar.disable:
            print(f"{run.name}: started", flush=True)

    def ended(self, end: End, running: Running) -> None:
        """Show how a run ended."""
        del self._waiting[end.run.folder]
        took = "" if end.seconds is None else f" ({duration(end.seconds)})"
        for kind in _kinds(end.run):
            self._seconds.setdefault(kind, []).extend(filter(None, [end.seconds]))
        self._bar.update()
        number = f"{self._total - len(self._waiting):{len(str(self._total))}}/{self._total}"
        left = self._time_left(running) if self._bar.disable else ""
        self._bar.write(f"[{number}] {end.run.name} {end.status}: {end.reason}{took}{left}", file=sys.stdout)
        sys.stdout.flush()

    def remaining(self, running: Running) -> float | None:
        """Estimate the remaining seconds from similar runs; None if a run cannot be estimated."""
        past = {run.folder: seconds for run, seconds, _ in running}
        left = []
        for folder, run in self._waiting.items():
            similar = next((self._seconds[kind] for kind in _kinds(run) if self._seconds.get(kind)), None)
            if similar is None:
                return None
            left.append(max(0.0, sum(similar) / len(similar) - past.get(folder, 0.0)))
        return max(sum(left) / self._at_once, max(left)) if left and self._at_once else None

    def _time_left(self, running: Running) -> str:
        left = self.remaining(running)
        return "" if left is None else f", about {duration(left)} left"

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


def _kinds(run: Run) -> list[object]:
    """Return keys of runs that take about as long, the most similar first."""
    return [(run.method, run.dataset, run.trains), (run.method, run.trains), run.trains, ""]


def describe_step(step: Mapping[str, Any]) -> str:
    """Return what a running job is doing, from its last message."""
    if "epoch" not in step:
        return f"evaluating ({step['evaluates']})" if "evaluates" in step else "starting"
    session = f"session {step['session']}, " if step.get("session") is not None else ""
    return f"{session}epoch {step['epoch']}/{step['epochs']}"


def duration(seconds: float) -> str:
    """Return a duration as text, such as 12 s, 3 min or 2 h 05 min."""
    minutes = round(seconds / 60)
    return (
        f"{seconds:.0f} s"
        if minutes < 2
        else f"{minutes // 60} h {minutes % 60:02} min"
        if minutes > 99
        else f"{minutes} min"
    )
