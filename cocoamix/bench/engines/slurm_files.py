"""Files through which the runner and its jobs communicate. They are JSON, which is safe to read.

submitit pickles a job and its result. The job unpickles itself; the runner unpickles neither.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeGuard

from cocoamix.bench.ledger import BLOCKED
from cocoamix.bench.runs import Run
from cocoamix.io.files import write_json

from .process import DONE, FAILED, LEFT_OUT, Outcome


@dataclass(frozen=True)
class SubmittedRuns:
    """The runs that a job was given."""

    runs: dict[Path, dict[str, Any]]  # as `plain` returns them, by their folders
    answer: str  # name of the file, next to this one, in which the job reports the outcomes


def plain(run: Run) -> dict[str, Any]:
    """Return a run as values that JSON can hold."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(run), default=str))
    return found


def write_runs(path: Path, runs: Sequence[Run], answer: str) -> None:
    """Record the runs of a job.

    Args:
        path: The file to write.
        runs: The runs.
        answer: The name of the file in which the job reports the outcomes.
    """
    write_json(path, {"runs": [plain(run) for run in runs], "answer": answer})


def read_runs(path: Path) -> SubmittedRuns | None:
    """Return the recorded runs of a job, or None if there is no usable record."""
    content = _read(path)
    runs, answer = content.get("runs"), content.get("answer")
    if not isinstance(runs, list) or not isinstance(answer, str):
        return None
    if not all(isinstance(run, dict) and isinstance(run.get("folder"), str) for run in runs):
        return None
    return SubmittedRuns({Path(run["folder"]): run for run in runs}, Path(answer).name)


def write_outcomes(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the outcomes of the runs of a job."""
    found = {str(one.run.folder): {key: getattr(one, key) for key in _KINDS} for one in outcomes}
    write_json(path, {"outcomes": found})


def write_error(path: Path, error: BaseException) -> None:
    """Write the error that ended a job."""
    write_json(path, {"error": " ".join(f"{type(error).__name__}: {error}".split())})


def read_answer(path: Path, runs: Sequence[Run]) -> list[Outcome] | str | None:
    """Return the outcomes of the runs of a job, or the error that ended it; None if it reported neither."""
    content = _read(path)
    if isinstance(content.get("error"), str):
        return str(content["error"])
    outcomes = content.get("outcomes")
    found: list[Outcome] = []
    for run in runs:
        one = outcomes.get(str(run.folder)) if isinstance(outcomes, dict) else None
        if not _is_outcome(one):
            return None
        found.append(Outcome(run, **{key: one[key] for key in _KINDS}))
    return found


_KINDS: dict[str, tuple[type, ...]] = {
    "status": (str,),
    "reason": (str,),
    "seconds": (int, float),
    "accuracy": (int, float),
}


def _is_outcome(value: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(value, dict) or value.get("status") not in (DONE, FAILED, LEFT_OUT, BLOCKED):
        return False
    return all(isinstance(value.get(key), kinds) for key, kinds in _KINDS.items())


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
