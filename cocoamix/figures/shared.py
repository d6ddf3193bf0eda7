"""The error for runs that have no dataset, epoch or seed in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cocoamix.errors import UserError, printable, some_of

_WAYS_OUT = {
    "dataset": "Run what is missing, or give only output folders of runs on the same datasets.",
    "epoch": "Evaluate the models of one epoch with --load-epoch, and add these folders.",
    "seed": "Run what is missing, or give only output folders of runs with the same seeds.",
}


def nothing_shared(kind: str, where: str, found: Mapping[str, Iterable[Any]]) -> UserError:
    """Return the error for runs that share nothing.

    Args:
        kind: What they should share: dataset, epoch or seed.
        where: The runs in question, such as "on base classes".
        found: The values that each point of the figure has, by the name of the point.
    """
    listed = [f"{name} has {_list(values)}" for name, values in found.items()]
    return UserError(printable(f"No {kind} is shared by all runs {where}: {some_of(listed)}. {_WAYS_OUT[kind]}"))


def _list(values: Iterable[Any]) -> str:
    ordered = sorted(values, key=lambda value: (value is None, value or 0))
    return ", ".join("an unknown epoch" if value is None else str(value) for value in ordered) or "none"
