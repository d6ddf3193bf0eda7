"""The roles of keys, looked up by the protocol, resume, evaluations, the runner and the report.

Names may come from any configuration, or from a log of another code base. A key that is not in the table has the role
`run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from .key import FromCheckpoint, Key
from .table import KEYS

_EXACT = {key.name: key for key in KEYS if not key.is_pattern}
# The longest matching pattern is the most specific.
_PATTERNS = sorted((key for key in KEYS if key.is_pattern), key=lambda key: len(key.name), reverse=True)


@lru_cache(maxsize=4096)
def find(name: str) -> Key:
    """Return the declaration of a key."""
    if name in _EXACT:
        return _EXACT[name]
    return next((key for key in _PATTERNS if key.matches(name)), Key(name))


def matters(name: str) -> bool:
    """Return whether a result can depend on a key."""
    return find(name).role.matters


def of_training(name: str) -> bool:
    """Return whether an evaluation records the value of the training run instead of its own."""
    return find(name).role.of_training


def compared_in_cell(name: str) -> bool:
    """Return whether the report compares a key among the runs of one cell, which may differ only in the seed."""
    return find(name).role.in_cell


def compared_in_model(name: str) -> bool:
    """Return whether the report compares a key among all runs of one model: training and evaluations."""
    return find(name).role.in_model


def symbol(name: str) -> str:
    """Return the symbol of a key in the paper, or the last part of its name."""
    return find(name).symbol or name.rsplit(".", 1)[-1]


def taken_from_checkpoint(section: str, with_template: bool, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys below TRAINER.<section> that an evaluation takes from training.

    They affect the trained prompt but are not in its weights.

    Args:
        section: The trainer's node.
        with_template: Whether the trainer's loss uses the hand-crafted prompt, so that its template is one of them.
        settings: The node in the configuration of the evaluation.
    """
    taken = {FromCheckpoint.ALWAYS, *([FromCheckpoint.IF_TRAINED_WITH_TEMPLATE] if with_template else [])}
    prefix = f"TRAINER.{section}."
    always = (key for key in KEYS if key.name.startswith(prefix) and key.from_checkpoint in taken)
    names = [key.name.removeprefix(prefix) for key in always]
    return (*names, *(name for name in if_empty(section) if not settings[name]))


def if_empty(section: str) -> tuple[str, ...]:
    """Return the keys below TRAINER.<section> that an evaluation takes from training if it sets none itself."""
    prefix = f"TRAINER.{section}."
    return tuple(
        key.name.removeprefix(prefix)
        for key in KEYS
        if key.name.startswith(prefix) and key.from_checkpoint is FromCheckpoint.IF_EMPTY
    )
