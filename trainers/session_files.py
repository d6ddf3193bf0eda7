"""The file that a finished session leaves: reading it, and refusing what is none before anything relies on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from cocoamix import checkpoints
from cocoamix.errors import UserError

FOLDER = "sessions"  # below a run's folder
Models = dict[str, dict[str, Tensor]]  # parameters by the names of models
_NAME = re.compile(r"session-(0|[1-9]\d*)\.pth")


@dataclass(frozen=True)
class Kept:
    """What a session learned, and what it belongs to (see `SavingTrainer.provenance`)."""

    path: Path
    epoch: int
    models: Models
    origin: dict[str, Any]
    unreadable: dict[str, str]


def session_file(folder: str, number: int) -> Path:
    """Return the file of what a session learned, below a run's folder."""
    return Path(folder, FOLDER, f"session-{number}.pth")


def count_sessions(folder: str) -> int:
    """Return how many sessions a run's folder holds; refuse a gap. Files of other names are none of ours."""
    found = (_NAME.fullmatch(path.name) for path in Path(folder, FOLDER).glob("session-*"))
    there = sorted(int(match[1]) for match in found if match)
    if there != list(range(len(there))):
        missing = next(number for number in range(len(there)) if number not in there)
        raise UserError(
            f"{session_file(folder, missing)} is missing, but later sessions are there. Restore it, "
            f"or delete {Path(folder, FOLDER)} to start anew."
        )
    return len(there)


def read_session(path: Path, number: int) -> Kept:
    """Read a session's file."""
    content = checkpoints.load(path)
    origin, models = content.get("cocoamix"), content.get("models")
    unreadable = content.get("unreadable", {})
    if not isinstance(origin, dict):
        raise _not_a_session(path, "it does not tell which run it is of")
    kinds = {"trainer": str, "weights_sha256": str, "activation": str, "classnames": list}
    for key, kind in {**kinds, "seed": int, "settings": dict, "protocol": dict}.items():
        if not isinstance(origin.get(key), kind):
            raise _not_a_session(path, f"it does not tell the {key} of its run")
    if type(content.get("epoch")) is not int or content["epoch"] < 1:
        raise _not_a_session(path, f"its epoch is {content.get('epoch')!r}")
    if content.get("session") != number:
        raise _not_a_session(path, f"it is session {content.get('session')!r} by its content")
    if not isinstance(models, dict) or "prompt_learner" not in models or not all(map(_is_state, models.values())):
        raise _not_a_session(path, "it holds no prompt")
    if not isinstance(unreadable, dict):
        raise _not_a_session(path, "its list of unreadable images is none")
    return Kept(path, content["epoch"], models, origin, unreadable)


def _is_state(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(tensor, Tensor) for tensor in value.values())


def _not_a_session(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is not what a session keeps: {reason}. Restore it, or delete {path.parent}.")
