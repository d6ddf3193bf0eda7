"""Rules for the facts of a protocol: which runs must agree on them, and which facts prevent a comparison.

A fact is a dotted key of `protocol` in results.json. All runs of a row must agree on a fact that is not listed, and it
does not prevent a comparison with another row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Scope(Enum):
    """Which runs of a row must agree on a fact."""

    ROW = "all"
    CELL = "those of one dataset and subset"
    NONE = "none: it differs by design"


@dataclass(frozen=True)
class Fact:
    """The rules for a fact of the protocol."""

    scope: Scope = Scope.ROW
    comparable: bool = False  # runs must agree on it for their accuracies in a cell to be compared
    where_true: bool = False  # stated only if it applies
    otherwise: Any = None  # the value for a run that does not state it, if known


# In the order in which a note names them.
FACTS = {
    "splits.test": Fact(Scope.CELL, comparable=True),
    "evaluated_on": Fact(comparable=True),
    "backbone": Fact(comparable=True),
    "weights_sha256": Fact(comparable=True),
    "activation": Fact(comparable=True),
    "transforms.SIZE": Fact(comparable=True),
    "transforms.INTERPOLATION": Fact(comparable=True),
    "transforms.PIXEL_MEAN": Fact(comparable=True),
    "transforms.PIXEL_STD": Fact(comparable=True),
    "partition": Fact(comparable=True, otherwise="label"),  # of the classes into base and new; CoOp's is by label
    "templates": Fact(Scope.CELL),
    "fingerprint": Fact(Scope.CELL),  # of the whole protocol
    "dataset": Fact(Scope.NONE),
    "subset": Fact(Scope.NONE),
    "shots": Fact(Scope.NONE),
    "splits.train": Fact(Scope.NONE),
    "splits.folds": Fact(Scope.NONE),
    "centred": Fact(where_true=True),
    "calibrated": Fact(where_true=True),
}
COMPARABLE = tuple(name for name, fact in FACTS.items() if fact.comparable)
_OTHER = Fact()
_UNSTATED = {name: fact.otherwise for name, fact in FACTS.items() if fact.otherwise is not None}


def meaning(name: str) -> Fact:
    """Return the rules for a fact."""
    return FACTS.get(name, _OTHER)


def known(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a protocol, with defaults for those that it does not state."""
    return {**_UNSTATED, **protocol}
