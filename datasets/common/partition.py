"""Dividing the classes of a dataset into base and new."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from cocoamix.config.partition import LABEL, number_of


def divide(labels: Iterable[int], partition: str = LABEL) -> tuple[list[int], list[int]]:
    """Return the labels of the base classes, of which there is one more in an odd number, and those of the new ones.

    `random:K` shuffles the sorted labels by a generator of its own: neither the seed of the run nor the order of the
    images has a part in it.
    """
    ordered, number = sorted(set(labels)), number_of(partition)
    if number is not None:
        random.Random(number).shuffle(ordered)
    half = math.ceil(len(ordered) / 2)
    return sorted(ordered[:half]), sorted(ordered[half:])
