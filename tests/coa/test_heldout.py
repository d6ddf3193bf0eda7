"""Folds, and what is fitted to held-out similarities, against a grid search and closed forms."""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cocoamix.coa.heldout import MIN_PI, assign_folds, count_folds, fit, fit_weight

SCALE = 100.0


def draw(seed: int, better: float, rows: int = 40, classes: int = 6) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return similarities of two prompts with independent noise, the second with `better` x the signal, and labels."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=generator)
    noise = 0.02 * torch.randn(2, rows, classes, generator=generator)
    right = torch.nn.functional.one_hot(labels, classes)
    return noise[0] + 0.02 * right, noise[1] + 0.02 * better * right, labels


def nll(
    hand_crafted: torch.Tensor, learned: torch.Tensor, labels: torch.Tensor, pi: float, scale: float = SCALE
) -> float:
    """With numpy, independent of our softmax."""
    z = scale * ((1 - pi) * hand_crafted.double().numpy() + pi * learned.double().numpy())
    top = z.max(axis=1, keepdims=True)
    total = np.log(np.exp(z - top).sum(axis=1)) + top[:, 0]
    return float((total - z[np.arange(len(z)), labels.numpy()]).mean())


@pytest.mark.parametrize(("counts", "wanted"), [([4, 4], 4), ([16, 16], 4), ([2, 9], 2), ([3, 5], 3), ([1, 4], 0)])
def test_number_of_folds(counts: list[int], wanted: int) -> None:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    assert count_folds(labels) == wanted


@given(counts=st.lists(st.integers(2, 9), min_size=1, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_folds_are_stratified(counts: list[int], seed: int) -> None:
    """Every class is spread as evenly as possible, so that no fold misses a class entirely; so are all images."""
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    folds = count_folds(labels)
    found = assign_folds(labels, folds, seed)
    assert found == assign_folds(labels, folds, seed)
    for label, count in enumerate(counts):
        sizes = Counter(fold for fold, other in zip(found, labels, strict=True) if other == label)
        assert max(sizes.values()) <= math.ceil(count / folds) < count
    sizes = Counter(found)
    assert max(sizes.values()) - min(sizes[fold] for fold in range(folds)) <= 1


def test_fold_assignment_continues_from_class_to_class() -> None:
    """The exact assignment, so that other versions hold out the same images."""
    generator = random.Random(7)
    first, second = [0, 2, 4, 6, 7], [1, 3, 5]
    generator.shuffle(first)
    generator.shuffle(second)
    found = assign_folds([0, 1, 0, 1, 0, 1, 0, 0], 3, 7)
    assert [found[index] for index in first + second] == [0, 1, 2, 0, 1, 2, 0, 1]


@given(seed=st.integers(0, 10**6), better=st.floats(0.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_fitted_weight_matches_a_grid_search(seed: int, better: float) -> None:
    hand_crafted, learned, labels = draw(seed, better)
    found = fit(hand_crafted, learned, labels, SCALE)
    grid = np.linspace(MIN_PI, 1 - MIN_PI, 201)
    values = [nll(hand_crafted, learned, labels, pi) for pi in grid]
    assert found.nll == pytest.approx(nll(hand_crafted, learned, labels, found.pi_in), abs=1e-9)
    assert found.nll <= min(values) + 1e-12
    assert abs(found.pi_in - grid[int(np.argmin(values))]) <= 1 / 200  # a step of the grid: the function is convex
    scales = SCALE * np.exp(np.linspace(math.log(0.05), math.log(20), 201))
    calibrated = min(nll(hand_crafted, learned, labels, found.pi_in, scale) for scale in scales)
    assert found.calibrated_nll <= calibrated + 1e-12
    assert found.calibrated_nll <= found.nll + 1e-12
    at = nll(hand_crafted, learned, labels, found.pi_in, 1 / found.temperature)
    assert found.calibrated_nll == pytest.approx(at, abs=1e-9)
    assert found.images == 40
    assert [pi for pi, _ in found.curve] == [number / 20 for number in range(21)]
    assert found.as_dict() == {field: getattr(found, field) for field in found.__dataclass_fields__}
    for pi, value in found.curve:
        assert value == pytest.approx(nll(hand_crafted, learned, labels, pi), abs=1e-9)


@given(seed=st.integers(0, 10**6), better=st.floats(0.0, 3.0))
@settings(max_examples=40, deadline=None)
def test_weight_at_the_one_stage_scale_matches_a_grid_search(seed: int, better: float) -> None:
    hand_crafted, learned, labels = (one.double() if one.is_floating_point() else one for one in draw(seed, better))
    found = fit_weight(hand_crafted, learned, labels, SCALE, one_stage=True)
    grid = np.linspace(0, 0.99, 100)
    values = [nll(hand_crafted, learned, labels, pi, SCALE / (1 - pi)) for pi in grid]
    at = nll(hand_crafted, learned, labels, found, SCALE / (1 - found))
    assert at <= min(values) + 1e-4  # the grid has 0, and the fit stays 1e-6 away
    assert abs(found - grid[int(np.argmin(values))]) <= 0.01 + 1e-6 or found > 0.98


def test_weight_is_0_for_a_useless_and_1_for_a_perfect_prompt() -> None:
    hand_crafted, learned, labels = (one.double() if one.is_floating_point() else one for one in draw(1, 1.0))
    right = torch.nn.functional.one_hot(labels, 6).double()
    assert fit_weight(right, learned, labels, SCALE) == MIN_PI
    assert fit_weight(hand_crafted, right, labels, SCALE) == 1 - MIN_PI
    assert fit_weight(hand_crafted, hand_crafted, labels, SCALE) == pytest.approx(0.5)
