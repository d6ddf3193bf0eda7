"""Runs killed at random moments and between any two file changes end like an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .conftest import Tally
from .runs import KINDS, Child, Place, finish, outcome

# Audit events that change files or folders; `open` counts if it is for writing.
_CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}


class Undisturbed:
    """Undisturbed runs of each kind, made on first use."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._known: dict[str, tuple[dict[str, Any], float, Path]] = {}

    def __call__(self, kind: str) -> tuple[dict[str, Any], float, Path]:
        """Return the outcome of a kind of run, the seconds it takes with a cold store, and its folder."""
        if kind not in self._known:
            for _ in range(2):  # the first one may be slower, as it reads the images from the disk
                folder, store = self.place.fresh(f"whole {kind}"), self.place.fresh("store")
                start = time.monotonic()
                finish(self.place.arguments(kind, folder, "CACHE.DIR", str(store)), self.place.folder / "whole.txt")
                self._known[kind] = (outcome(folder), time.monotonic() - start, folder)
        return self._known[kind]


@pytest.fixture(scope="module")
def undisturbed(place: Place) -> Undisturbed:
    return Undisturbed(place)


def kill_at_random(
    place: Place, undisturbed: Undisturbed, kind: str, rng: random.Random, chains: int, how: signal.Signals
) -> int:
    """Disturb runs until each ends by itself, compare, and return how many signals hit a running process."""
    wanted, seconds, _ = undisturbed(kind)
    met = 0
    for number in range(chains):
        folder, log = place.fresh("disturbed"), place.folder / "disturbed.txt"
        store = place.folder / "store"
        if number % 2 == 0:  # every second chain starts with a cold store
            shutil.rmtree(store, ignore_errors=True)
        arguments = place.arguments(kind, folder, "CACHE.DIR", str(store))
        for _ in range(3):
            child = Child(arguments, log)
            time.sleep(rng.uniform(0, seconds))
            child.kill(how)
            status = child.wait()
            met += status != 0
            allowed = {signal.SIGKILL: (0, -9), signal.SIGTERM: (0, -15, 143), signal.SIGINT: (0, 130)}[how]
            assert status in allowed, (status, child.output()[-2500:])
            assert "Traceback" not in child.output(), child.output()[-2500:]
        finish(arguments, log)
        assert outcome(folder) == wanted, f"{kind}, chain {number}"
        assert not list(folder.rglob("*.part")), "files of a killed writer are deleted"
    assert met, "every run had ended before its signal"
    return met


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_runs_killed_at_random_end_like_undisturbed_ones(
    kind: str, place: Place, undisturbed: Undisturbed, rng: random.Random, tally: Tally
) -> None:
    tally.count("kill -9, random", kill_at_random(place, undisturbed, kind, rng, 3, signal.SIGKILL))


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["CoOp", "CoCoAMix, folds", "CoCoAMix, sessions"])
def test_runs_stopped_by_signals_end_like_undisturbed_ones(
    kind: str, how: signal.Signals, place: Place, undisturbed: Undisturbed, rng: random.Random, tally: Tally
) -> None:
    tally.count(f"{how.name}, random", kill_at_random(place, undisturbed, kind, rng, 2, how))


def watch_files(below: Path, at_change: Callable[[int], None]) -> None:
    """Call `at_change` with a counter before each change of a file below a folder, in this process."""
    number = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal number
        if event not in _CHANGES or not arguments or not str(arguments[0]).startswith(str(below)):
            return
        if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            return
        number += 1
        at_change(number)

    sys.addaudithook(hook)


def count_changes(arguments: Sequence[str], below: Path, log: Path) -> int:
    """Return how many file changes a run makes below a folder."""
    notes = log.with_suffix(".changes")
    descriptor = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def note(number: int) -> None:
        os.write(descriptor, b".")

    child = Child(arguments, log, lambda: watch_files(below, note))
    os.close(descriptor)
    assert child.wait() == 0, child.output()[-2500:]
    return notes.stat().st_size


def kill_between_files(
    place: Place, undisturbed: Undisturbed, kind: str, rng: random.Random, most: int | None, evaluate: bool = False
) -> int:
    """Kill a run of a kind, or its evaluation, before each of its file changes, or before `most` of them."""
    wanted, _, trained = undisturbed(kind)
    read = outcome_of_evaluation if evaluate else outcome
    flags = ["--eval-only", "--model-dir", str(trained)] if evaluate else []
    top = place.fresh("between")
    arguments = place.arguments(kind, top / "run", "CACHE.DIR", str(top / "store"), flags=flags)
    log = place.folder / "between.txt"
    total = count_changes(arguments, top, log)
    if evaluate:
        wanted = read(top / "run")
    assert total > 4
    chosen = range(1, total + 1) if most is None else sorted(rng.sample(range(1, total + 1), min(most, total)))
    for moment in chosen:
        shutil.rmtree(top)
        top.mkdir()

        child = Child(arguments, log, partial(watch_files, top, partial(die_at, moment)))
        assert child.wait() == -9, (moment, total, child.output()[-2500:])
        finish(arguments, log)
        assert read(top / "run") == wanted, f"{kind}, killed before change {moment} of {total}"
        assert not list(top.rglob("*.part")), f"{kind}, killed before change {moment} of {total}"
    return len(chosen)


def die_at(moment: int, number: int) -> None:
    """Kill this process without warning when the counter reaches a value."""
    if number == moment:
        os.kill(os.getpid(), signal.SIGKILL)


def outcome_of_evaluation(folder: Path) -> Any:
    """Return the results of an evaluation."""
    return json.loads((folder / "results.json").read_text())["metrics"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CoOp, best on val", "CoCoAMix, folds", "CoCoAMix, sessions"])
def test_runs_killed_between_any_two_file_changes_end_like_undisturbed_ones(
    kind: str, place: Place, undisturbed: Undisturbed, rng: random.Random, tally: Tally
) -> None:
    tally.count("kill -9, before each change of a file", kill_between_files(place, undisturbed, kind, rng, None))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["CoOp", "CoCoAMix, sessions"])
def test_killed_evaluations_end_like_undisturbed_ones(
    kind: str, place: Place, undisturbed: Undisturbed, rng: random.Random, tally: Tally
) -> None:
    done = kill_between_files(place, undisturbed, kind, rng, None, evaluate=True)
    tally.count("kill -9, before each change of a file", done)


def test_short_kill_run(place: Place, undisturbed: Undisturbed, rng: random.Random, tally: Tally) -> None:
    """A few of each, in every test run."""
    tally.count("kill -9, random", kill_at_random(place, undisturbed, "CoCoAMix", rng, 1, signal.SIGKILL))
    tally.count("SIGINT, random", kill_at_random(place, undisturbed, "CoOp", rng, 1, signal.SIGINT))
    tally.count(
        "kill -9, before each change of a file",
        kill_between_files(place, undisturbed, "CoCoAMix, sessions", rng, 3),
    )
