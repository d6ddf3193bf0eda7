"""A one-sided paired t-test without scipy, which the report would need for nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .stats import deviation, mean


@dataclass(frozen=True)
class OneSided:
    """The result of a one-sided paired t-test of whether differences are above zero.

    Attributes:
        difference: The mean difference.
        t: The statistic; infinite if all differences are equal and not zero.
        p: The probability of a t at least this large if the differences are centred at zero.
        pairs: The number of pairs.
    """

    difference: float
    t: float
    p: float
    pairs: int


def paired_t_test(differences: Sequence[float]) -> OneSided:
    """Test at least two paired differences with Student's t-test.

    If all differences are equal, the result is the limit: p is 0 above zero, 1 below, and 1/2 if they are zero.
    """
    count = len(differences)
    if count < 2:
        raise ValueError(f"a paired t-test needs at least two differences, not {count}")
    centre = mean(differences)
    error = deviation(differences) / math.sqrt(count - 1)  # of the mean; `deviation` is that of the population
    # Rounding errors of equal differences do not count as spread.
    if error <= 1e-12 * max(abs(one) for one in differences):
        t = math.copysign(math.inf, centre) if centre else 0.0
    else:
        t = centre / error
    tail = _upper_tail(abs(t), count - 1)
    return OneSided(centre, t, tail if t >= 0 else 1 - tail, count)


def _upper_tail(t: float, freedom: int) -> float:
    """Return the probability that Student's t is above `t`, which must not be negative."""
    if math.isinf(t):
        return 0.0
    # The two-sided tail is the incomplete beta function at x = f / (f + t^2) with the parameters f / 2 and 1 / 2.
    # A series in x keeps the digits of a small p. Close to x = 1 it converges slowly, so a series in 1 - x is used.
    x, half = freedom / (freedom + t * t), freedom / 2
    if x < 0.99:
        return _incomplete_beta(x, half, 0.5) / 2
    return (1 - _incomplete_beta(1 - x, 0.5, half)) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function by its series of positive terms."""
    if x <= 0:
        return 0.0
    log_front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a + 1) - math.lgamma(b)
    total = term = 1.0
    number = 0
    while term > 1e-17 * total:
        term *= x * (a + b + number) / (a + 1 + number)
        total += term
        number += 1
    return math.exp(log_front) * total
