"""The facts of a protocol that are not like any other: which runs must agree in them, and what they decide.

A fact is a dotted key of `protocol` in results.json. One that is not listed must agree among all runs of a row, and
stops no comparison with another row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Scope(Enum):
    """Which runs of a row must agree in a fact."""

    ROW = "all"
    CELL = "those of one dataset and subset"
    NONE = "none: it differs by design"


@dataclass(frozen=True)
class Fact:
    """What a fact of the protocol means."""

    scope: Scope = Scope.ROW
    comparable: bool = False  # accuracies of one cell say nothing about each other where it differs
    where_true: bool = False  # stated only where it takes effect
    otherwise: Any = None  # what holds of a run that does not state it, if that is known


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
    """Return what a fact means."""
    return FACTS.get(name, _OTHER)


def known(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a protocol, with those that hold although it does not state them."""
    return {**_UNSTATED, **protocol}
