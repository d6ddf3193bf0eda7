"""What keys mean for a result, by the table: for the protocol, resume, evaluations, the runner and the report.

Names may be any that a configuration or a peer's log has; a key that the table does not know is a run's own.
"""

from __future__ import annotations

from functools import lru_cache

from .key import FromCheckpoint, Key
from .table import KEYS

_EXACT = {key.name: key for key in KEYS if not key.is_pattern}
# Of two patterns that match, the longer one says more.
_PATTERNS = sorted((key for key in KEYS if key.is_pattern), key=lambda key: len(key.name), reverse=True)


@lru_cache(maxsize=4096)
def find(name: str) -> Key:
    """Return the row of the table that holds for a key."""
    if name in _EXACT:
        return _EXACT[name]
    return next((key for key in _PATTERNS if key.matches(name)), Key(name))


def matters(name: str) -> bool:
    """Say whether a result can depend on a key."""
    return find(name).role.matters


def of_training(name: str) -> bool:
    """Say whether an evaluation is recorded with a key of the run that it evaluates, instead of its own."""
    return find(name).role.of_training


def compared_in_cell(name: str) -> bool:
    """Say whether the report compares a key among the runs of one cell, which may differ in the seed alone."""
    return find(name).role.in_cell


def compared_in_model(name: str) -> bool:
    """Say whether the report compares a key among all runs of one model: its training and its evaluations."""
    return find(name).role.in_model


def symbol(name: str) -> str:
    """Return what the paper calls a key, or its own last name."""
    return find(name).symbol or name.rsplit(".", 1)[-1]


def taken_from_checkpoint(section: str, with_template: bool = False) -> tuple[str, ...]:
    """Return the keys below TRAINER.<section> whose value in training holds in an evaluation, too.

    They shape the trained prompt without being in its weights. with_template: whether the trainer's loss needs the
    hand-crafted prompt, so that its template is one of them.
    """
    taken = {FromCheckpoint.ALWAYS, *([FromCheckpoint.IF_TRAINED_WITH_TEMPLATE] if with_template else [])}
    prefix = f"TRAINER.{section}."
    return tuple(
        key.name.removeprefix(prefix) for key in KEYS if key.name.startswith(prefix) and key.from_checkpoint in taken
    )
