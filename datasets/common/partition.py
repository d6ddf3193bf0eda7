"""Divide the classes of a dataset into base and new."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from cocoamix.config.partition import LABEL, number_of


def divide(labels: Iterable[int], partition: str = LABEL) -> tuple[list[int], list[int]]:
    """Return the labels of the base and of the new classes. If their number is odd, base has one more.

    `random:K` shuffles the sorted labels with a separate generator, independent of the seed and of the order of images.
    """
    ordered, number = sorted(set(labels)), number_of(partition)
    if number is not None:
        random.Random(number).shuffle(ordered)
    half = math.ceil(len(ordered) / 2)
    return sorted(ordered[:half]), sorted(ordered[half:])
