"""The paired t-test against scipy's, and what it returns without spread."""

from __future__ import annotations

import math
import random

import pytest

from cocoamix.report.model.t_test import paired_t_test


@pytest.mark.parametrize("count", [2, 3, 4, 5, 10, 11, 15, 30, 200])
@pytest.mark.parametrize("centre", [-3.0, -0.3, 0.0, 0.001, 0.3, 3.0, 30.0])
def test_p_matches_scipy(count: int, centre: float) -> None:
    """With p from near 1 down to the limit of precision in the other tail."""
    scipy = pytest.importorskip("scipy.stats")
    numbers = random.Random(count)
    ours = [70 + numbers.gauss(centre, 1.0) for _ in range(count)]
    theirs = [70 + numbers.gauss(0.0, 0.5) for _ in range(count)]
    wanted = scipy.ttest_rel(ours, theirs, alternative="greater")
    found = paired_t_test([one - other for one, other in zip(ours, theirs, strict=True)])
    assert found.pairs == count
    assert found.t == pytest.approx(wanted.statistic, rel=1e-9)
    assert found.p == pytest.approx(wanted.pvalue, rel=1e-9, abs=1e-300)
    assert found.difference == pytest.approx(sum(ours) / count - sum(theirs) / count)


def test_two_pairs_have_a_closed_form() -> None:
    """Student's t with one degree of freedom is Cauchy's distribution."""
    found = paired_t_test([1.0, 3.0])  # the mean is 2, its error 1
    assert found.t == pytest.approx(2)
    assert found.p == pytest.approx(0.5 - math.atan(2) / math.pi)


@pytest.mark.parametrize(("value", "p"), [(0.1, 0.0), (-0.1, 1.0), (0.0, 0.5)])
def test_without_spread_p_is_a_limit(value: float, p: float) -> None:
    found = paired_t_test([value] * 3)
    assert found.p == p
    assert found.t == (math.copysign(math.inf, value) if value else 0)
    assert found.difference == pytest.approx(value)


def test_rounding_errors_do_not_count_as_spread() -> None:
    assert paired_t_test([0.1 + 0.2, 0.3, 0.3]).p == 0


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_pairs_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"at least two differences, not {count}"):
        paired_t_test([1.0] * count)
