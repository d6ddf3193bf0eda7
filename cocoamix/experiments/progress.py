"""Show the progress of a plan: on a terminal a bar with the running jobs, in a log plain lines."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from .runs import Run

if TYPE_CHECKING:
    from .local import End, Worker


class Progress:
    """Shows the progress of a plan.

    Args:
        runs: The runs to execute.
        at_once: The number of runs at a time. 0 if it is unknown, as on a cluster; then no time is estimated.
    """

    def __init__(self, runs: Sequence[Run], at_once: int) -> None:
        self._waiting, self._at_once = {run.folder: run for run in runs}, at_once
        self._seconds: dict[tuple[object, ...], list[float]] = {}  # durations of runs of a kind
        tqdm.monitor_interval = 0  # no second thread, because this one starts processes
        shape = "{n_fmt}/{total_fmt} runs |{bar:20}| {elapsed}{postfix}"
        self.bar = tqdm(total=len(runs), bar_format=shape, leave=False, mininterval=0.5, miniters=0, disable=None)

    def tick(self, running: Collection[Worker]) -> None:
        """Update the bar."""
        jobs = "; ".join(f"{worker.run.name} {describe_step(worker.step)}" for worker in running)
        self.bar.set_postfix_str(f"{len(running)} running{self.time_left(running)}: {jobs}", refresh=False)
        self.bar.update(0)

    def ended(self, end: End, running: Collection[Worker]) -> None:
        """Show how a run ended."""
        del self._waiting[end.run.folder]
        took = "" if end.seconds is None else f" ({tqdm.format_interval(end.seconds)})"
        for kind in _kinds(end.run):
            self._seconds.setdefault(kind, []).extend([end.seconds] if end.seconds else [])
        self.bar.update()
        total = self.bar.total
        left = self.time_left(running) if self.bar.disable else ""
        line = f"[{total - len(self._waiting):{len(str(total))}}/{total}] {end.run.name} {end.status}: {end.reason}"
        self.bar.write(f"{line}{took}{left}", file=sys.stdout)
        sys.stdout.flush()

    def time_left(self, running: Collection[Worker]) -> str:
        """Return the remaining time, estimated from runs of the same kind; empty if none is finished."""
        means = {kind: fmean(seconds) for kind, seconds in self._seconds.items() if seconds}
        if not (means and self._waiting and self._at_once):
            return ""
        past = {worker.run.folder: worker.seconds for worker in running}
        takes = {
            run.folder: next(means[kind] for kind in _kinds(run) if kind in means) for run in self._waiting.values()
        }
        left = [max(0.0, seconds - past.get(folder, 0.0)) for folder, seconds in takes.items()]
        return f", about {tqdm.format_interval(max(sum(left) / self._at_once, *left))} left"


def _kinds(run: Run) -> list[tuple[object, ...]]:
    """Return keys of runs that take about as long, the most similar first."""
    return [(run.method.name, run.dataset, run.trains), (run.method.name, run.trains), ()]


def describe_step(step: Mapping[str, Any]) -> str:
    """Return what a running job is doing, from its last message."""
    if "epoch" not in step:
        return f"evaluating ({step['evaluates']})" if "evaluates" in step else "starting"
    session = f"session {step['session']}, " if step.get("session") is not None else ""
    return f"{session}epoch {step['epoch']}/{step['epochs']}"
