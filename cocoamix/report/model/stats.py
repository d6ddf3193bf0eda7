"""The statistics that a report uses."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

_EXACT = 16  # pairs up to which every assignment of signs is tried
_DRAWS = 2**_EXACT


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean."""
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float:
    """Return the population standard deviation, as CoOp's parser does (numpy's default)."""
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / len(values))


def harmonic(base: float, new: float) -> float:
    """Return the harmonic mean; 0 if both are 0."""
    return 2 * base * new / (base + new) if base + new else 0.0


@dataclass(frozen=True)
class Comparison:
    """The mean of paired differences, and p of a sign-flip test."""

    difference: float
    p: float
    pairs: int

    @property
    def smallest_p(self) -> float:
        """The smallest p that this number of pairs can give."""
        return min(1.0, 2.0 ** (1 - self.pairs))


def compare(differences: Sequence[float]) -> Comparison:
    """Test whether paired differences are centred at zero: two-sided sign-flip permutation test.

    Exact for up to 16 pairs; for more, 65,536 assignments of signs are drawn with a fixed seed.
    """
    count = len(differences)
    observed = abs(math.fsum(differences)) - 1e-9  # ties must not depend on rounding
    if count <= _EXACT:
        sums = [0.0]
        for difference in differences:
            sums = [total + signed for total in sums for signed in (difference, -difference)]
        p = sum(abs(total) >= observed for total in sums) / len(sums)
    else:
        generator = random.Random(0)
        hits = 1  # the observed assignment
        for _ in range(_DRAWS - 1):
            signs = generator.getrandbits(count)
            hits += abs(sum(d if signs >> i & 1 else -d for i, d in enumerate(differences))) >= observed
        p = hits / _DRAWS
    return Comparison(mean(differences), p, count)
