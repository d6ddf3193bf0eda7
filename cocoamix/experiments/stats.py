"""The statistics of reports and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

_EXACT = 16  # differences up to which every assignment of signs is tried


class Comparison(NamedTuple):
    """Paired differences: mean, 95 % t-interval (nan for a single pair), p of the sign-flip test, number of pairs."""

    difference: float
    low: float
    high: float
    p: float
    pairs: int


def harmonic(base: Any, new: Any) -> Any:
    """Return the harmonic mean of numbers or columns; 0 where both are 0."""
    total = np.asarray(base + new, dtype=float)
    return 2 * base * new / np.where(total == 0, 1.0, total)


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % t-interval of a mean; nan for fewer than two values."""
    if len(values) < 2:
        return float("nan"), float("nan")
    centre, reach = float(np.mean(values)), float(stats.sem(values) * stats.t.ppf(0.975, len(values) - 1))
    return centre - reach, centre + reach


def compare(differences: Sequence[float]) -> Comparison:
    """Test whether paired differences are centred at zero, without assuming their distribution."""
    return Comparison(float(np.mean(differences)), *t_interval(differences), sign_flip(differences), len(differences))


def sign_flip(differences: Sequence[float]) -> float:
    """Return p of the two-sided sign-flip permutation test of paired differences.

    It is exact for up to 16 pairs; for more, 65,536 assignments of signs are drawn with a fixed seed.
    """
    if len(differences) < 2:
        return 1.0  # both assignments of signs are as extreme as the one observed
    result = stats.permutation_test(
        (np.asarray(differences, dtype=float),),
        # The absolute value makes both tails one. Ties must not depend on rounding.
        lambda values, axis: np.round(np.abs(np.mean(values, axis=axis)), 9),
        permutation_type="samples",
        vectorized=True,
        n_resamples=2**_EXACT + (1 if len(differences) <= _EXACT else -1),
        alternative="greater",
        rng=np.random.default_rng(0),
    )
    return float(result.pvalue)


def one_sided_t_test(differences: Sequence[float]) -> tuple[float, float]:
    """Return t and p of a paired t-test of whether differences are above zero.

    If all differences are equal, the result is the limit: p is 0 above zero, 1 below, and 1/2 if they are zero.
    """
    values = np.asarray(differences, dtype=float)
    if np.ptp(values) <= 1e-12 * np.max(np.abs(values)):  # rounding errors are no spread
        sign = float(np.sign(values[0]))
        return sign * float("inf") if sign else 0.0, 0.5 - 0.5 * sign
    result = stats.ttest_1samp(values, 0.0, alternative="greater")
    return float(result.statistic), float(result.pvalue)
