"""The file that a finished session leaves: one small file, written when it is finished and never changed."""

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

FOLDER = "sessions"  # below a run's folder
Models = dict[str, dict[str, Tensor]]  # parameters by the names of models
_PROMPT = "prompt_learner"  # the model that most methods learn
_NAME = re.compile(r"session-(0|[1-9]\d*)\.pth")


@dataclass(frozen=True)
class Kept:
    """What a session learned, and what it belongs to (what a checkpoint tells of its origin)."""

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


def read_session(path: Path, number: int, model: str = _PROMPT) -> Kept:
    """Read a session's file. model: what it must hold."""
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
        raise _not_a_session(path, f"its epoch is {_short(content.get('epoch'))}")
    if type(content.get("session")) is not int or content["session"] != number:
        raise _not_a_session(path, f"it is session {_short(content.get('session'))} by its content")
    if not isinstance(models, dict) or model not in models or not all(map(is_state, models.values())):
        raise _not_a_session(path, "it holds no prompt" if model == _PROMPT else f"it holds no {model}")
    if not isinstance(unreadable, dict):
        raise _not_a_session(path, "its list of unreadable images is not a mapping")
    return Kept(path, content["epoch"], models, origin, unreadable)


def save_session(
    folder: str, number: int, epoch: int, models: Models, origin: Mapping[str, Any], unreadable: Mapping[str, str]
) -> None:
    """Keep what a session learned."""
    path = session_file(folder, number)
    content = {
        "session": number,
        "epoch": epoch,
        "models": models,
        "unreadable": dict(unreadable),
        "cocoamix": dict(origin),
    }
    checkpoints.save(path, content)
    print(f"Session {number} is kept in {path}")


def copy_session(one: Kept, folder: str) -> None:
    """Bring a session's file along from the folder that a run resumes from."""
    write_atomically(Path(folder, FOLDER, one.path.name), copier(one.path))


def read_sessions(folder: str, expected: Sequence[Mapping[str, Any]], model: str = _PROMPT) -> list[Kept]:
    """Return what the sessions in a run's folder keep, once it is sure that they are of one run of this kind.

    expected: what the file of each session of this run would tell of its origin; what it leaves out may be anything.
    model: what each must hold.
    """
    count = count_sessions(folder)
    if count > len(expected):
        raise UserError(f"{folder} holds {count} sessions, but this run has {len(expected)}.")
    found = [read_session(session_file(folder, number), number, model) for number in range(count)]
    for one, now in zip(found, expected, strict=False):
        _check_kind(one, now)
        _check_same_run(one, found[0])
    return found


def _check_kind(found: Kept, now: Mapping[str, Any]) -> None:
    for key in ("trainer", "weights_sha256", "activation", "classnames"):
        theirs, ours = found.origin[key], now.get(key, found.origin[key])
        if key == "trainer":
            theirs, ours = plain_name(theirs), plain_name(ours)
        if differ(theirs, ours):
            raise UserError(
                f"{found.path} belongs to another run: its {key} is {_short(theirs)}, and this run's is {_short(ours)}."
            )


def _check_same_run(one: Kept, first: Kept) -> None:
    """Refuse sessions that were put together from several runs: what each learned depends on those before it."""
    for key in ("seed", "settings", "protocol"):
        theirs, ours = one.origin[key], first.origin[key]
        if isinstance(ours, dict):
            theirs, ours = (protocol.relevant(flatten(side)) for side in (theirs, ours))
            # A run that an older version began has both kinds of files.
            theirs, ours = protocol.updated(theirs, ours), protocol.updated(ours, theirs)
            for side in (theirs, ours):
                side.pop("centred", None)  # which older files tell, though it is a fact of an evaluation
            differing = [name for name in sorted({*theirs, *ours}) if differ(theirs.get(name), ours.get(name))]
            if differing:
                key, theirs, ours = differing[0], theirs.get(differing[0]), ours.get(differing[0])
        if differ(theirs, ours):
            raise UserError(
                f"{one.path} is of another run than {first.path.name}: its {key} is {_short(theirs)}, "
                f"and that one's is {_short(ours)}. Restore it."
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _not_a_session(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is not a session file: {reason}. Restore it, or delete {path.parent}.")
