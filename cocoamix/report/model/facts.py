"""The facts of a protocol that are not like any other: which runs must agree in them, and what they decide.

A fact is a dotted key of `protocol` in results.json. One that is not listed must agree among all runs of a row, and
stops no comparison with another row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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


def meaning(name: str) -> Fact:
    """Return what a fact means."""
    return FACTS.get(name, _OTHER)
