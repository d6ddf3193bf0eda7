"""Whether results were made with the settings that a run asks for. The runner and the shell scripts compare alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cocoamix.config import roles
from cocoamix.config.key import FromCheckpoint
from cocoamix.config.settings import flatten
from cocoamix.run.results import Results

_SHOWN = 3  # differing keys
_LONGEST = 60  # characters of a value

Settings = Mapping[str, Any]  # dotted keys of a configuration


def settings_of_arguments(arguments: Sequence[str]) -> Settings:
    """Return the settings that train.py will use. Imports the trainers, which takes seconds."""
    from cocoamix.run.protocol import settings_of
    from cocoamix.train import parse_arguments, setup_cfg

    return settings_of(setup_cfg(parse_arguments(arguments)))


def differing(now: Settings, results: Results, arguments: Sequence[str] = ()) -> str:
    """Say which settings of results are not those of now; nothing if all agree.

    arguments: of the run. An evaluation of a trained model takes what shaped the model from its checkpoint, so that
    these keys are not compared; the training run is judged by itself.
    """
    if not now:
        return ""
    from cocoamix.run.protocol import brought_up  # imports torch, which whoever knows settings has imported

    then = brought_up(flatten(results.config), now) if results.config else {}
    evaluates = "--model-dir" in arguments
    # A key that one of them lacks is newer than the other's code: it says nothing.
    pairs = [
        (key, then[key], value)
        for key, value in now.items()
        if key in then and then[key] != value and not (evaluates and _of_model(key))
    ]
    shown = [f"{key} was {_short(old)} and is {_short(new)}" for key, old, new in pairs[:_SHOWN]]
    return "; ".join(shown + ["..."] * (len(pairs) > _SHOWN))


def _of_model(key: str) -> bool:
    found = roles.find(key)
    return found.role.of_training or found.from_checkpoint is not FromCheckpoint.NEVER


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
