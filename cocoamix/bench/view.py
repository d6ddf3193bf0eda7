"""One view of all runs: a bar on a terminal, plain lines in a log, and how long it will take."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from tqdm import tqdm

from .engines.process import DONE, Outcome
from .runs import Run


class Pace:
    """Estimates what is left from what runs of the same kind took."""

    def __init__(self) -> None:
        self._seen: dict[object, list[float]] = {}

    def record(self, run: Run, seconds: float) -> None:
        """Take note of a run that ended well."""
        for kind in _kinds(run):
            self._seen.setdefault(kind, []).append(seconds)

    def estimate(self, run: Run) -> float | None:
        """Return how long a run takes: as the same method's, else as a run that trains or evaluates, else as any."""
        found = next((self._seen[kind] for kind in _kinds(run) if kind in self._seen), None)
        return sum(found) / len(found) if found else None

    def remaining(self, waiting: Iterable[Run], running: Iterable[tuple[Run, float]], at_once: int) -> float | None:
        """Return the seconds that are left. running: runs and the seconds since they began."""
        whole = [(self.estimate(run), 0.0) for run in waiting] + [(self.estimate(run), past) for run, past in running]
        if any(one is None for one, _ in whole):
            return None
        left = [max(0.0, (one or 0.0) - past) for one, past in whole]
        return max(sum(left) / at_once, max(left, default=0.0))


def _kinds(run: Run) -> list[object]:
    return [(run.method, run.dataset, run.trains), (run.method, run.trains), run.trains, ""]


class View:
    """Shows how far a plan is.

    runs: what is to be done. at_once: how many go at a time.
    """

    def __init__(self, runs: Sequence[Run], pace: Pace, at_once: int) -> None:
        self.outcomes: list[Outcome] = []  # so far
        self._waiting = list(runs)
        self._total, self._failed = len(runs), 0
        self._pace, self._at_once = pace, max(1, at_once)
        self._left: float | None = None
        self._bar: tqdm | None = None
        if sys.stderr.isatty():
            tqdm.monitor_interval = 0  # no thread beside the one that starts processes
            shape = "{n_fmt}/{total_fmt} runs |{bar}| {elapsed}{postfix}"
            self._bar = tqdm(total=self._total, bar_format=shape, leave=False)

    def tick(self, running: Iterable[tuple[Run, float]]) -> None:
        """Show how long it will take. running: runs and the seconds since they began."""
        running = list(running)
        going = {run.folder for run, _ in running}
        waiting = [run for run in self._waiting if run.folder not in going]
        self._left = self._pace.remaining(waiting, running, self._at_once)
        if self._bar is not None:
            failed = f", {self._failed} failed" if self._failed else ""
            self._bar.set_postfix_str(f"{len(running)} running{failed}{self._eta()}")

    def _eta(self) -> str:
        return "" if self._left is None or not self._waiting else f", about {duration(self._left)} left"

    def ended(self, outcome: Outcome, running: Iterable[tuple[Run, float]]) -> None:
        """Show how a run ended."""
        self.outcomes.append(outcome)
        self._waiting = [run for run in self._waiting if run.folder != outcome.run.folder]
        if outcome.status == DONE:
            if not outcome.reason:  # else another process did it
                self._pace.record(outcome.run, outcome.seconds)
            told = f"{outcome.accuracy:.2f} % ({outcome.reason or duration(outcome.seconds)})"
        else:
            self._failed += 1
            told = f"{outcome.status.upper()}: {outcome.reason}"
        if self._bar is not None:
            self._bar.update()
        self.tick(running)
        number = self._total - len(self._waiting)
        tail = self._eta() if self._bar is None else ""
        line = f"[{number:{len(str(self._total))}}/{self._total}] {outcome.run.name}: {told}{tail}"
        self.say(line)

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self._bar is not None:
            self._bar.write(line, file=sys.stdout)
        else:
            print(line, flush=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()


def duration(seconds: float) -> str:
    """Return seconds as people say them."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"
