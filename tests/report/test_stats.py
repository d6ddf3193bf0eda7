"""The report's statistics against independent calculations."""

from __future__ import annotations

import itertools
import math
import statistics
from fractions import Fraction

import numpy as np
import pytest

from cocoamix.report.model.stats import Comparison, compare, deviation, harmonic


def test_deviation_matches_numpy() -> None:
    values = [70.1, 65.3, 88.0, 12.5]
    assert deviation(values) == pytest.approx(float(np.std(values)))


def test_harmonic_mean_matches_the_library_and_is_zero_for_zeros() -> None:
    assert harmonic(77.23, 68.56) == pytest.approx(statistics.harmonic_mean([77.23, 68.56]))
    assert harmonic(0.0, 0.0) == 0.0
    assert harmonic(60.0, 60.0) == 60


def test_all_sign_flips_are_enumerated() -> None:
    differences = [1.5, -0.2, 0.7, 2.1, 0.0]
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [abs(sum(s * d for s, d in zip(one, differences, strict=True))) for one in signs]
    expected = sum(total >= abs(sum(differences)) - 1e-9 for total in sums) / len(sums)
    assert compare(differences).p == pytest.approx(expected)
    assert compare([1.0] * 11).p == pytest.approx(2 / 2**11)
    assert compare([1.0] * 3).smallest_p == 0.25
    assert compare([-1.0] * 3).p == 0.25, "a loss is as significant as a gain"


def test_sampled_p_is_close_to_the_exact_value() -> None:
    rng = np.random.default_rng(0)
    differences = [float(value) for value in rng.normal(0.25, 1, 20)]
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    exact = float((np.abs(sums) >= abs(sum(differences)) - 1e-9).mean())
    assert compare(differences).p == pytest.approx(exact, abs=0.01)
    assert compare(differences) == compare(differences), "the draw has a fixed seed"


def exact_p(differences: list[str]) -> float:
    """The p of decimals as written: sums of fractions have no rounding that could break a tie."""
    numbers = [Fraction(one) for one in differences]
    signs = itertools.product((1, -1), repeat=len(numbers))
    sums = [abs(sum(sign * one for sign, one in zip(each, numbers, strict=True))) for each in signs]
    return sum(total >= abs(sum(numbers)) for total in sums) / len(sums)


@pytest.mark.parametrize(
    "differences", [["0.1", "0.2", "-0.3", "0.7"], ["0.3", "0.1", "0.1", "0.1"], ["1.1", "-2.2", "3.3", "0.1", "2.2"]]
)
def test_rounding_does_not_break_ties(differences: list[str]) -> None:
    assert compare([float(one) for one in differences]).p == exact_p(differences)


def test_ties_of_sampled_signs_count() -> None:
    """Of twenty equal steps twelve are up: 24 % of all sign patterns give exactly this sum, and they count."""
    sizes = [abs(2 * ups - 20) for ups in range(21)]
    share = sum(math.comb(20, ups) for ups, size in enumerate(sizes) if size >= 4) / 2**20
    assert compare([0.1] * 12 + [-0.1] * 8).p == pytest.approx(share, abs=0.01)
    assert compare([0.0] * 20).p == 1


def test_observed_signs_count_as_one_sample() -> None:
    """So that p is never 0: no sample of 2^60 sign patterns hits the two that are as extreme."""
    assert compare([1.0] * 60).p == 1 / 2**16


def test_few_pairs_are_exact_and_more_are_sampled() -> None:
    more = sum(math.comb(16, ups) for ups in range(12, 17))  # twelve of sixteen up, or more, or as many down
    assert compare([1.0] * 12 + [-1.0] * 4).p == 2 * more / 2**16
    for pairs, smallest in ((1, 1.0), (2, 0.5), (5, 1 / 16)):
        found = compare([1.0] * pairs)
        assert (found.p, found.smallest_p) == (smallest, smallest)


def test_comparison_fields() -> None:
    found = compare([1.0, 2.5, -0.5])
    assert (found.difference, found.pairs) == (pytest.approx(1.0), 3)
    assert Comparison(0.0, 1.0, 0).smallest_p == 1
