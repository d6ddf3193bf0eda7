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


def differing(now: Settings, results: Results, arguments: Sequence[str] = (), trains: bool = True) -> str:
    """Say which settings of results are not those of now; nothing if all agree.

    arguments: of the run. An evaluation of a trained model takes what shaped the model from its checkpoint, so that
    these keys are not compared; the training run is judged by itself. trains: whether the run trains; if nothing was
    trained at all, how to train is not compared.
    """
    if not now:
        return ""
    from cocoamix.run.protocol import brought_up  # imports torch, which whoever knows settings has imported

    then = brought_up(flatten(results.config), now) if results.config else {}
    if "--model-dir" in arguments:
        return _list([key for key in now if not _of_model(key)], then, now)
    return _list([key for key in now if trains or not _of_optimisation(key)], then, now)


def differing_model(evaluation: Results, training: Results) -> str:
    """Say which training settings that an evaluation states are not those of the training run; nothing if all agree."""
    from cocoamix.run.protocol import brought_up

    now = flatten(training.config)
    then = brought_up(flatten(evaluation.config), now) if evaluation.config else {}
    return _list([key for key in now if roles.of_training(key) and not _of_choice(key)], then, now)


def _list(keys: Sequence[str], then: Settings, now: Settings) -> str:
    """Say which of the keys differ. One that one side lacks is newer than the other's code: it says nothing."""
    found = [key for key in keys if key in then and then[key] != now[key]]
    shown = [f"{key} was {_short(then[key])} and is {_short(now[key])}" for key in found[:_SHOWN]]
    return "; ".join(shown + ["..."] * (len(found) > _SHOWN))


def _of_model(key: str) -> bool:
    found = roles.find(key)
    return found.role.of_training or found.from_checkpoint is not FromCheckpoint.NEVER


def _of_optimisation(key: str) -> bool:
    """Say whether a key is read in training alone: prompts and sessions also shape what is not trained."""
    return key.startswith(("OPTIM.", "TRAIN.", "LOSS.", "DATALOADER.TRAIN_X.")) and roles.of_training(key)


def _of_choice(key: str) -> bool:
    """Say whether an evaluation may state a value of its own for a key of training."""
    return key in ("TEST.FINAL_MODEL", "TRAINER.ENLEARN.PROMPTS") or key.endswith(".TEMPLATE")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
