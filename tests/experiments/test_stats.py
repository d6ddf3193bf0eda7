"""The statistics of reports against scipy's tests, hand-made numbers and properties."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from cocoamix.experiments.stats import compare, harmonic, one_sided_t_test, sign_flip, t_interval

DIFFERENCES = st.lists(st.floats(-50, 50).map(lambda value: round(value, 2)), min_size=1, max_size=7)


@given(DIFFERENCES)
def test_sign_flip_counts_all_assignments_of_signs(differences: list[float]) -> None:
    observed = abs(sum(differences)) - 1e-6
    signs = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(sign * value for sign, value in zip(each, differences, strict=True))) for each in signs]
    assert sign_flip(differences) == pytest.approx(sum(total >= observed for total in sums) / len(sums))


def test_sign_flip_has_the_smallest_p_for_differences_of_one_sign() -> None:
    assert sign_flip([1.0, 2.0, 3.0]) == 2 / 2**3
    assert sign_flip([0.5] * 11) == 2 / 2**11


def test_many_pairs_are_resampled_reproducibly() -> None:
    differences = [0.1 * (number % 7) - 0.2 for number in range(20)]
    assert sign_flip(differences) == sign_flip(differences)
    assert sign_flip(differences) == pytest.approx(scipy_stats.wilcoxon(differences).pvalue, abs=0.2)


def test_interval_holds_the_mean_and_needs_two_values() -> None:
    low, high = t_interval([1.0, 2.0, 3.0])
    # t of 0.975 with two degrees of freedom is 4.3027; the standard error is 1 / sqrt(3).
    assert (low, high) == (pytest.approx(2 - 4.302653 / math.sqrt(3)), pytest.approx(2 + 4.302653 / math.sqrt(3)))
    assert all(map(math.isnan, t_interval([1.0])))
    assert compare([1.0, 2.0, 3.0]).difference == 2


def test_one_sided_t_test_is_student_s() -> None:
    expected = scipy_stats.ttest_rel([3.0, 5.0, 4.0], [2.0, 2.5, 4.5], alternative="greater")
    assert one_sided_t_test([1.0, 2.5, -0.5]) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))


@pytest.mark.parametrize(("value", "p"), [(2.0, 0.0), (-2.0, 1.0), (0.0, 0.5)])
def test_one_sided_t_test_of_equal_differences_is_its_limit(value: float, p: float) -> None:
    assert one_sided_t_test([value] * 3)[1] == p


@given(st.floats(0, 100), st.floats(0, 100))
def test_harmonic_mean_is_between_its_values(base: float, new: float) -> None:
    mean = float(harmonic(base, new))
    assert min(base, new) - 1e-9 <= mean <= max(base, new) + 1e-9 or mean == 0
