"""The runner's files in a run's output folder: console.txt, and bench.json, a record of the run's start and end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cocoamix.io.files import write_json
from cocoamix.io.texts import UnreadableError, read_json

STAMP = "bench.json"
CONSOLE = "console.txt"  # the output of train.py, of all starts
TRAIN_LOCK = ".lock"  # train.py locks it itself, even without the runner
LOCKED = (CONSOLE, TRAIN_LOCK)  # files that are locked while a run is active


def read_stamp(folder: Path) -> dict[str, Any]:
    """Return the runner's record of a run; empty if the run was not started by the runner."""
    try:
        content = read_json(folder / STAMP)
    except UnreadableError:
        return {}
    return content if isinstance(content, dict) else {}


def write_stamp(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the record of a run."""
    write_json(folder / STAMP, content)


def seconds_of(stamp: Mapping[str, Any]) -> float | None:
    """Return how long a run took; None if its record does not state it."""
    return _number(stamp.get("seconds"))


def time_of(stamp: Mapping[str, Any]) -> float:
    """Return when a run ended, or else began, in seconds since 1970; 0 if unknown."""
    return _number(stamp.get("time")) or 0.0


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
