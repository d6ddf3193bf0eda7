"""The remaining time, and what is shown on a terminal and in a log."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cocoamix.bench.engines.process import DONE, FAILED, Outcome
from cocoamix.bench.runs import Run
from cocoamix.bench.stamp import CONSOLE
from cocoamix.bench.view import Pace, View, duration, step_of


def make(method: str, number: int, trains: bool = True, dataset: str = "shapes") -> Run:
    folder = Path(f"{method}{number}{dataset}{trains}")
    return Run(f"{method} {number}", folder, (), (), method, dataset, "base", number, 4, trains)


def test_time_estimate_uses_the_most_similar_run() -> None:
    pace = Pace()
    assert pace.estimate(make("a", 1)) is None
    pace.record(make("a", 1), 10)
    pace.record(make("a", 2), 20)
    pace.record(make("b", 1, trains=False), 2)
    assert pace.estimate(make("a", 3)) == 15
    assert pace.estimate(make("a", 3, dataset="other")) == 15  # the same method elsewhere
    assert pace.estimate(make("c", 1)) == 15  # another method that trains
    assert pace.estimate(make("c", 1, trains=False)) == 2


def test_remaining_time_of_waiting_and_running_jobs() -> None:
    pace = Pace()
    for number in (1, 2):
        pace.record(make("a", number), 10)
    waiting = [make("a", number) for number in (3, 4, 5)]
    assert pace.remaining(waiting, [(make("a", 6), 4.0), (make("a", 7), 30.0)], 2) == (30 + 6 + 0) / 2
    assert pace.remaining(waiting[:1], [], 8) == 10  # no shorter than the longest
    assert Pace().remaining(waiting, [], 2) is None


def test_log_has_plain_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    runs = [make("a", number) for number in (1, 2, 3)]
    view = View(runs, Pace(), 1)
    view.started(runs[0])
    view.ended(Outcome(runs[0], DONE, seconds=30, accuracy=71.5), [(runs[1], 10.0)])
    view.ended(Outcome(runs[1], FAILED, "it is broken"), [])
    view.ended(Outcome(runs[2], DONE, seconds=30, accuracy=72), [])
    view.close()
    assert capsys.readouterr().out.splitlines() == [
        "a 1: started",
        "[1/3] a 1: 71.50 % (30 s), about 50 s left",
        "[2/3] a 2: FAILED: it is broken, about 30 s left",
        "[3/3] a 3: 72.00 % (30 s)",
    ]


def test_no_estimate_without_the_number_of_runs_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster decides how many jobs run at a time."""
    runs = [make("a", number) for number in (1, 2)]
    view = View(runs, Pace(), None)
    view.ended(Outcome(runs[0], DONE, seconds=30, accuracy=71.5), [])
    view.close()
    assert capsys.readouterr().out == "[1/2] a 1: 71.50 % (30 s)\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_steps_of_a_running_job(tmp_path: Path) -> None:
    run = replace(make("a", 1), folder=tmp_path)
    assert step_of(run) == "starting"
    console, shown = tmp_path / CONSOLE, []
    for text in (
        "$ train.py\noverview\n",
        "epoch [1/50] batch [1/2] loss 1\n" * 500,
        "Evaluate on the *val* set\n",
        "epoch [2/50] batch [1/2]\n",
        "Evaluate on the *test* set\n=> result\n",
        "$ train.py\noverview\n",
    ):
        with console.open("a") as file:
            file.write(text)
        shown.append(step_of(run))
    assert shown == ["starting", "epoch 1/50", "evaluating (val)", "epoch 2/50", "evaluating (test)", "starting"]


def test_jobs_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    runs = [make("a", number) for number in range(12)]
    view = View(runs, Pace(), 12)
    view.tick([(run, 5.0) for run in runs])
    assert "a 6: starting, 5 s" in screen.getvalue()
    assert "a 7: " not in screen.getvalue()
    assert "and 5 more" in screen.getvalue()
    view.close()
    assert not screen.getvalue().rpartition("\r")[2].strip()


def test_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    runs = [make("a", number) for number in (1, 2)]
    view = View(runs, Pace(), 1)
    view.ended(Outcome(runs[0], DONE, seconds=30, accuracy=71.5), [(runs[1], 10.0)])
    view.close()
    assert "1/2 runs" in screen.getvalue()
    assert "1 running, about 20 s left" in screen.getvalue()
    assert "[1/2] a 1: 71.50 % (30 s)\n" in capsys.readouterr().out


def test_durations_are_rounded() -> None:
    assert [duration(one) for one in (0.4, 99, 125, 3600, 100 * 60 + 5)] == [
        "0 s",
        "99 s",
        "2 min",
        "60 min",
        "1 h 40 min",
    ]
