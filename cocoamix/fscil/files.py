"""Session files: one small file per finished session. It is never changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.io.files import write_atomically
from cocoamix.registry import plain_name
from cocoamix.run import protocol
from cocoamix.run.checkpointer import copier, is_state
from cocoamix.run.origin import differ

FOLDER = "sessions"  # in the output folder of a run
Models = dict[str, dict[str, Tensor]]  # parameters of each model, by its name
_PROMPT = "prompt_learner"  # the model of most methods
_NAME = re.compile(r"session-(0|[1-9]\d*)\.pth")


@dataclass(frozen=True)
class SavedSession:
    """The models of a finished session and their `origin`."""

    path: Path
    epoch: int
    models: Models
    origin: dict[str, Any]
    unreadable: dict[str, str]


def session_file(folder: str, number: int) -> Path:
    """Return the file of a session in the output folder of a run."""
    return Path(folder, FOLDER, f"session-{number}.pth")


def count_sessions(folder: str) -> int:
    """Return the number of sessions in the output folder of a run; raise a UserError if an earlier one is missing."""
    found = (_NAME.fullmatch(path.name) for path in Path(folder, FOLDER).glob("session-*"))
    there = sorted(int(match[1]) for match in found if match)
    if there != list(range(len(there))):
        missing = next(number for number in range(len(there)) if number not in there)
        raise UserError(
            f"{session_file(folder, missing)} is missing, but later sessions exist. Restore it, "
            f"or delete {Path(folder, FOLDER)} to start again."
        )
    return len(there)


def read_session(path: Path, number: int, model: str = "") -> SavedSession:
    """Read the file of a session, which must contain `model`, if one is named."""
    content = checkpoints.load(path)
    origin, models = content.get("cocoamix"), content.get("models")
    unreadable = content.get("unreadable", {})
    if not isinstance(origin, dict):
        raise _not_a_session(path, "it does not record its run")
    kinds = {"trainer": str, "weights_sha256": str, "activation": str, "classnames": list}
    for key, kind in {**kinds, "seed": int, "settings": dict, "protocol": dict}.items():
        if not isinstance(origin.get(key), kind):
            raise _not_a_session(path, f"it does not record the {key} of its run")
    if type(content.get("epoch")) is not int or content["epoch"] < 1:
        raise _not_a_session(path, f"its epoch is {_short(content.get('epoch'))}")
    if type(content.get("session")) is not int or content["session"] != number:
        raise _not_a_session(path, f"its content is that of session {_short(content.get('session'))}")
    if not isinstance(models, dict) or (model and model not in models) or not all(map(is_state, models.values())):
        raise _not_a_session(path, "it contains no prompt" if model == _PROMPT else f"it contains no {model}")
    if not isinstance(unreadable, dict):
        raise _not_a_session(path, "its list of unreadable images is not a mapping")
    return SavedSession(path, content["epoch"], models, origin, unreadable)


def save_session(
    folder: str, number: int, epoch: int, models: Models, origin: Mapping[str, Any], unreadable: Mapping[str, str]
) -> None:
    """Write the file of a session."""
    path = session_file(folder, number)
    content = {
        "session": number,
        "epoch": epoch,
        "models": models,
        "unreadable": dict(unreadable),
        "cocoamix": dict(origin),
    }
    checkpoints.save(path, content)
    print(f"Session {number} is saved in {path}")


def copy_session(one: SavedSession, folder: str) -> None:
    """Copy the file of a session from the folder that a run resumes from."""
    write_atomically(Path(folder, FOLDER, one.path.name), copier(one.path))


def read_sessions(folder: str, expected: Sequence[Mapping[str, Any]], model: str = _PROMPT) -> list[SavedSession]:
    """Read the sessions in the output folder of a run, and check that they belong to one run of this kind.

    Args:
        folder: Output folder of the run.
        expected: Expected origin of each session; missing keys may have any value.
        model: The model that each file must contain.
    """
    count = count_sessions(folder)
    if count > len(expected):
        raise UserError(f"{folder} contains {count} sessions, but this run has {len(expected)}.")
    found = [read_session(session_file(folder, number), number, model) for number in range(count)]
    for one, now in zip(found, expected, strict=False):
        _check_kind(one, now)
        _check_same_run(one, found[0])
    return found


def _check_kind(found: SavedSession, now: Mapping[str, Any]) -> None:
    for key in ("trainer", "weights_sha256", "activation", "classnames"):
        theirs, ours = found.origin[key], now.get(key, found.origin[key])
        if key == "trainer":
            theirs, ours = plain_name(theirs), plain_name(ours)
        if differ(theirs, ours):
            raise UserError(
                f"{found.path} belongs to another run: its {key} is {_short(theirs)}, but this run's is {_short(ours)}."
            )


def _check_same_run(one: SavedSession, first: SavedSession) -> None:
    """Raise a UserError if sessions come from different runs, because each depends on those before it."""
    for key in ("seed", "settings", "protocol"):
        theirs, ours = one.origin[key], first.origin[key]
        if isinstance(ours, dict):
            theirs, ours = (protocol.relevant(flatten(side)) for side in (theirs, ours))
            # Files of one run may lack keys that were added while it was interrupted.
            theirs, ours = protocol.updated(theirs, ours), protocol.updated(ours, theirs)
            for side in (theirs, ours):
                side.pop("centred", None)  # in some files, although it belongs to an evaluation
            differing = [name for name in sorted({*theirs, *ours}) if differ(theirs.get(name), ours.get(name))]
            if differing:
                key, theirs, ours = differing[0], theirs.get(differing[0]), ours.get(differing[0])
        if differ(theirs, ours):
            raise UserError(
                f"{one.path} and {first.path.name} belong to different runs: their {key} is {_short(theirs)} "
                f"and {_short(ours)}. Restore the file."
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _not_a_session(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is not a session file: {reason}. Restore it, or delete {path.parent}.")
