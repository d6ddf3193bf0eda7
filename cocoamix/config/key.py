"""What is declared of a configuration key: one `Key`, with all that any part of the project must know of it.

Nothing heavy is imported here or in the table: the report and the runner read roles without torch and without yaml.
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
    """What a key means for a result."""

    name: str
    meaning: str  # a sentence of docs/KEYS.md
    matters: bool = True  # a result depends on it: it is part of the settings that resume and the runner compare
    of_training: bool = False  # an evaluation is recorded with that of the run that it evaluates
    in_cell: bool = False  # the report compares it among the runs of one cell of a table, which differ in the seed
    in_model: bool = False  # and among all runs of one model: training and evaluations, base and new classes


HIDDEN = Role(
    "hidden",
    "Says where a run reads and writes, or how fast it goes. No result depends on it, and it may change on a resume.",
    matters=False,
)
RUN = Role(
    "run",
    "Each run states its own, an evaluation too. The report averages only runs that agree.",
    in_cell=True,
)
PROTOCOL = Role(
    "protocol",
    "As `run`. The report compares what the protocol in results.json, or the path of the run, says of it instead.",
)
MODEL = Role(
    "model",
    "An evaluation states its own. The report combines only runs that agree: base and new, source and targets.",
    in_cell=True,
    in_model=True,
)
TRAINING = Role(
    "training",
    "Shapes what is trained. An evaluation is recorded with the value that the checkpoint was trained with, if the "
    "checkpoint tells it. The report combines only runs that agree.",
    of_training=True,
    in_cell=True,
    in_model=True,
)
TRAINING_ONLY = Role(
    "training only",
    "As `training`, but peers' evaluations do not repeat it: the report compares it among runs of one dataset and "
    "subset alone.",
    of_training=True,
    in_cell=True,
)
TRAINING_PROTOCOL = Role(
    "training protocol",
    "As `training` in an evaluation, and as `protocol` in the report.",
    of_training=True,
)
ROLES = (HIDDEN, RUN, PROTOCOL, MODEL, TRAINING, TRAINING_ONLY, TRAINING_PROTOCOL)


class FromCheckpoint(Enum):
    """When an evaluation uses the value that a checkpoint was trained with instead of its own."""

    NEVER = "no"
    ALWAYS = "yes"
    IF_TRAINED_WITH_TEMPLATE = "where the hand-crafted prompt takes part in training"


class _Dassls(Enum):
    """The default of a key that Dassl declares."""

    DEFAULT = "Dassl's"


DASSLS = _Dassls.DEFAULT


@dataclass(frozen=True)
class Key:
    """One key, or all keys of a pattern: a last `*` stands for anything, another for one part of the name."""

    name: str  # dotted
    comment: str = ""  # what it does, for docs/KEYS.md
    default: Any = DASSLS
    allowed: Allowed | None = None  # beyond the type of the default
    also: tuple[type, ...] = ()  # types that it takes beside that of its default
    role: Role = RUN
    from_checkpoint: FromCheckpoint = FromCheckpoint.NEVER
    symbol: str = ""  # what the paper calls it
    older: Any = None  # what an older Dassl, which lacks the key, does in its place

    @property
    def ours(self) -> bool:
        """Whether this project declares it, and not Dassl."""
        return self.default is not DASSLS

    @property
    def path(self) -> list[str]:
        return self.name.split(".")

    @property
    def is_pattern(self) -> bool:
        return "*" in self.name

    def matches(self, name: str) -> bool:
        return name == self.name or (self.is_pattern and self._pattern.fullmatch(name) is not None)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = [r"\w+" if part == "*" else re.escape(part) for part in self.path]
        if self.path[-1] == "*":
            parts[-1] = ".+"
        return re.compile(r"\.".join(parts))

    def check(self, value: Any) -> None:
        """Refuse a value that is not allowed."""
        if self.allowed is not None:
            self.allowed.check(self.name, value)
