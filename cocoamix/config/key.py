"""The declaration of a configuration key: one `Key` has everything that the project needs to know about it.

This module and the table import nothing heavy, so that the report and the runner can read roles without torch or yaml.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from .allowed import Allowed


@dataclass(frozen=True)
class Role:
    """How results, evaluations and the report treat a key."""

    name: str
    meaning: str  # a sentence of docs/KEYS.md
    matters: bool = True  # results depend on it; resume and the runner compare it
    of_training: bool = False  # an evaluation records the value of the training run
    in_cell: bool = False  # the report compares it among the seeds of one table cell
    in_model: bool = False  # the report also compares it among all runs of one model: training and evaluations


HIDDEN = Role(
    "hidden",
    "Where a run reads and writes, or how fast it runs. Results do not depend on it; you may change it on resume.",
    matters=False,
)
RUN = Role(
    "run",
    "Every run and every evaluation uses its own value. The report averages only runs that agree.",
    in_cell=True,
)
PROTOCOL = Role(
    "protocol",
    "Like `run`, but the report reads the value from the protocol in results.json or from the path of the run.",
)
MODEL = Role(
    "model",
    "An evaluation uses its own value. The report combines base with new, or source with targets, only for runs that "
    "agree.",
    in_cell=True,
    in_model=True,
)
TRAINING = Role(
    "training",
    "Affects training. An evaluation records the value from training, if the checkpoint has it. The report combines "
    "only runs that agree.",
    of_training=True,
    in_cell=True,
    in_model=True,
)
TRAINING_ONLY = Role(
    "training only",
    "Like `training`, but the report compares it only among runs on the same dataset and subset, because evaluations "
    "in other code bases do not repeat it.",
    of_training=True,
    in_cell=True,
)
TRAINING_PROTOCOL = Role(
    "training protocol",
    "Like `training` in an evaluation, like `protocol` in the report.",
    of_training=True,
)
ROLES = (HIDDEN, RUN, PROTOCOL, MODEL, TRAINING, TRAINING_ONLY, TRAINING_PROTOCOL)


class FromCheckpoint(Enum):
    """When an evaluation uses the value from training instead of its own."""

    NEVER = "no"
    ALWAYS = "yes"
    IF_TRAINED_WITH_TEMPLATE = "where the hand-crafted prompt takes part in training"
    IF_EMPTY = "where it is empty"


class _Dassls(Enum):
    """The default of a key that Dassl declares."""

    DEFAULT = "Dassl's"


DASSLS = _Dassls.DEFAULT


@dataclass(frozen=True)
class Key:
    """One key, or all keys of a pattern: a final `*` matches anything, any other `*` one part of the name."""

    name: str  # dotted
    comment: str = ""  # what it does, for docs/KEYS.md
    default: Any = DASSLS
    allowed: Allowed | None = None  # beyond the type of the default
    also: tuple[type, ...] = ()  # types allowed in addition to that of the default
    role: Role = RUN
    from_checkpoint: FromCheckpoint = FromCheckpoint.NEVER
    symbol: str = ""  # its symbol in the paper
    older: Any = None  # the value that corresponds to an older Dassl without the key

    @property
    def ours(self) -> bool:
        """Whether this project declares the key, not Dassl."""
        return self.default is not DASSLS

    @property
    def path(self) -> list[str]:
        """The parts of the name."""
        return self.name.split(".")

    @property
    def is_pattern(self) -> bool:
        """Whether the name has a `*`."""
        return "*" in self.name

    def matches(self, name: str) -> bool:
        """Return whether this is the declaration of the key `name`."""
        return name == self.name or (self.is_pattern and self._pattern.fullmatch(name) is not None)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = [r"\w+" if part == "*" else re.escape(part) for part in self.path]
        if self.path[-1] == "*":
            parts[-1] = ".+"
        return re.compile(r"\.".join(parts))

    def check(self, value: Any) -> None:
        """Raise UserError for a value that is not allowed."""
        if self.allowed is not None:
            self.allowed.check(self.name, value)
