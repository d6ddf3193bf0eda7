"""The report's statistics against independent ways to compute them."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from cocoamix.report.stats import compare, deviation, harmonic


def test_deviation_is_numpys() -> None:
    values = [70.1, 65.3, 88.0, 12.5]
    assert deviation(values) == pytest.approx(float(np.std(values)))


def test_harmonic_mean_is_the_libraries_and_zero_for_zeros() -> None:
    assert harmonic(77.23, 68.56) == pytest.approx(statistics.harmonic_mean([77.23, 68.56]))
    assert harmonic(0.0, 0.0) == 0.0


def test_sign_flips_are_all_tried() -> None:
    differences = [1.5, -0.2, 0.7, 2.1, 0.0]
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [abs(sum(s * d for s, d in zip(one, differences, strict=True))) for one in signs]
    expected = sum(total >= abs(sum(differences)) - 1e-9 for total in sums) / len(sums)
    assert compare(differences).p == pytest.approx(expected)
    assert compare([1.0] * 11).p == pytest.approx(2 / 2**11)
    assert compare([1.0] * 3).smallest_p == 0.25


def test_many_pairs_are_sampled_close_to_the_exact_value() -> None:
    rng = np.random.default_rng(0)
    differences = [float(value) for value in rng.normal(0.25, 1, 20)]
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    exact = float((np.abs(sums) >= abs(sum(differences)) - 1e-9).mean())
    assert compare(differences).p == pytest.approx(exact, abs=0.01)
