"""The runner's files in a run's folder: console.txt, and bench.json, which tells what was started and how it went."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cocoamix.io.files import write_json
from cocoamix.io.texts import UnreadableError, read_json

STAMP = "bench.json"
CONSOLE = "console.txt"  # what train.py printed, of every start
TRAIN_LOCK = ".lock"  # of a train.py that was started without the runner
LOCKED = (CONSOLE, TRAIN_LOCK)  # while a run goes on


def read_stamp(folder: Path) -> dict[str, Any]:
    """Return what the runner noted beside a run's results; nothing if it did not make them."""
    try:
        content = read_json(folder / STAMP)
    except UnreadableError:
        return {}
    return content if isinstance(content, dict) else {}


def write_stamp(folder: Path, content: Mapping[str, Any]) -> None:
    """Write the note of a run."""
    write_json(folder / STAMP, content)


def seconds_of(stamp: Mapping[str, Any]) -> float | None:
    """Return how long a run took, if its note tells."""
    return _number(stamp.get("seconds"))


def time_of(stamp: Mapping[str, Any]) -> float:
    """Return when a run ended, or else began, in seconds since 1970; 0 if its note does not tell."""
    return _number(stamp.get("time")) or 0.0


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
