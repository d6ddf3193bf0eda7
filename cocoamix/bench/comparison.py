"""Compares the settings of results with those of a run, for the runner and the shell scripts."""

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
    """Return the settings that train.py will use. It imports the trainers, which takes seconds."""
    from cocoamix.run.protocol import settings_of
    from cocoamix.train import parse_arguments, setup_cfg

    return settings_of(setup_cfg(parse_arguments(arguments)))


def differing(now: Settings, results: Results, arguments: Sequence[str] = (), trains: bool = True) -> str:
    """Describe which settings of results differ from the present ones; empty if all agree.

    Args:
        now: The present settings.
        results: The results.
        arguments: The arguments of the run. An evaluation of a trained model takes its training settings from the
            checkpoint, so they are not compared; the training run is judged separately.
        trains: Whether the run trains. If not, settings that only training reads are not compared.
    """
    if not now:
        return ""
    from cocoamix.run.protocol import updated  # imports torch, which is already loaded where settings are known

    then = updated(flatten(results.config), now) if results.config else {}
    if "--model-dir" in arguments:
        return _list([key for key in now if not _of_model(key)], then, now)
    return _list([key for key in now if trains or not _of_optimisation(key)], then, now)


def differing_model(evaluation: Results, training: Results) -> str:
    """Describe which training settings of an evaluation differ from the training run; empty if all agree."""
    from cocoamix.run.protocol import updated

    now = flatten(training.config)
    then = updated(flatten(evaluation.config), now) if evaluation.config else {}
    return _list([key for key in now if roles.of_training(key) and not _of_choice(key)], then, now)


def _list(keys: Sequence[str], then: Settings, now: Settings) -> str:
    """Describe which keys differ. A key that only one side has is newer than the other's code and is not compared."""
    found = [key for key in keys if key in then and then[key] != now[key]]
    shown = [f"{key} was {_short(then[key])} and is {_short(now[key])}" for key in found[:_SHOWN]]
    return "; ".join(shown + ["..."] * (len(found) > _SHOWN))


def _of_model(key: str) -> bool:
    found = roles.find(key)
    return found.role.of_training or found.from_checkpoint is not FromCheckpoint.NEVER


def _of_optimisation(key: str) -> bool:
    """Return whether only training reads a key. Keys of prompts and sessions also affect evaluations."""
    return key.startswith(("OPTIM.", "TRAIN.", "LOSS.", "DATALOADER.TRAIN_X.")) and roles.of_training(key)


def _of_choice(key: str) -> bool:
    """Return whether an evaluation may have its own value of a training key."""
    return key in ("TEST.FINAL_MODEL", "TRAINER.ENLEARN.PROMPTS") or key.endswith(".TEMPLATE")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
