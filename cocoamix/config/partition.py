"""Ways to divide the classes of a dataset into halves: `label`, as in CoOp, or `random:K`."""

from __future__ import annotations

import re
from typing import Any

from cocoamix.errors import UserError, brief

KEY = "DATASET.PARTITION"
LABEL = "label"
_RANDOM = re.compile("random:(0|[1-9][0-9]{0,8})")  # one spelling each, because results compare it as text


def random_partition(number: int) -> str:
    """Return the value of the key that names a random partition."""
    return f"random:{number}"


def number_of(partition: Any) -> int | None:
    """Return K of `random:K`, or None for `label`. Anything else is a UserError."""
    if partition == LABEL:
        return None
    found = _RANDOM.fullmatch(partition) if isinstance(partition, str) else None
    if found is None:
        raise UserError(
            f"{KEY} is {brief(partition)}; it must be {LABEL} or random:K, where K is a whole number from 0 to "
            "999999999, such as random:1."
        )
    return int(found[1])


class Partition:
    """What the key allows."""

    def check(self, name: str, value: Any) -> None:
        """Raise UserError for a value that is not allowed."""
        number_of(value)

    def describe(self) -> str:
        """Return the allowed values in Markdown."""
        return f"`{LABEL}`, or `random:K` with an integer K of at least 0"
