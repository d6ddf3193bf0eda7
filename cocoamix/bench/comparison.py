"""Compare the settings of existing results with those of a run, for the runner and the shell scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cocoamix.config import roles
from cocoamix.config.key import FromCheckpoint
from cocoamix.config.settings import flatten
from cocoamix.run.results import Results

_SHOWN = 3  # number of differing keys in a message
_LONGEST = 60  # characters of a value in a message

Settings = Mapping[str, Any]  # dotted keys of a configuration


def settings_of_arguments(arguments: Sequence[str], origins: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that train.py will use. This imports the trainers, which takes seconds.

    Args:
        arguments: The arguments of train.py.
        origins: Where the keys of its options were set, for messages.
    """
    from cocoamix.run.protocol import settings_of
    from cocoamix.train import parse_arguments, setup_cfg

    return settings_of(setup_cfg(parse_arguments(arguments), origins))


def differing(now: Settings, results: Results, arguments: Sequence[str] = (), trains: bool = True) -> str:
    """Describe which settings of results differ from those of a run; empty if all agree.

    Args:
        now: The settings of the run.
        results: The results.
        arguments: The arguments of the run. An evaluation of a trained model takes its training settings from the
            checkpoint, so they are not compared; the training run is compared separately.
        trains: Whether the run trains. If not, settings that only training reads are not compared.
    """
    if not now:
        return ""
    from cocoamix.run.protocol import updated  # imports torch, which is already loaded if settings are known

    then = updated(flatten(results.config), now) if results.config else {}
    if "--model-dir" in arguments:
        return _describe([key for key in now if not _is_from_model(key)], then, now)
    return _describe([key for key in now if trains or not _is_training_only(key)], then, now)


def differing_model(evaluation: Results, training: Results) -> str:
    """Describe which training settings of an evaluation differ from the training run; empty if all agree."""
    from cocoamix.run.protocol import updated

    now = flatten(training.config)
    then = updated(flatten(evaluation.config), now) if evaluation.config else {}
    return _describe([key for key in now if roles.of_training(key) and not _may_differ(key)], then, now)


def _describe(keys: Sequence[str], then: Settings, now: Settings) -> str:
    """Describe which keys differ. A key that only one side has was added later, so it is not compared."""
    found = [key for key in keys if key in then and then[key] != now[key]]
    shown = [f"{key} was {_short(then[key])} and is {_short(now[key])}" for key in found[:_SHOWN]]
    return "; ".join(shown + ["..."] * (len(found) > _SHOWN))


def _is_from_model(key: str) -> bool:
    """Return whether an evaluation takes a key from the training run or its checkpoint."""
    found = roles.find(key)
    return found.role.of_training or found.from_checkpoint is not FromCheckpoint.NEVER


def _is_training_only(key: str) -> bool:
    """Return whether only training reads a key. Keys of prompts and sessions also affect evaluations."""
    return key.startswith(("OPTIM.", "TRAIN.", "LOSS.", "DATALOADER.TRAIN_X.")) and roles.of_training(key)


def _may_differ(key: str) -> bool:
    """Return whether an evaluation may have its own value of a training key."""
    return key in ("TEST.FINAL_MODEL", "TRAINER.ENLEARN.PROMPTS") or key.endswith(".TEMPLATE")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
