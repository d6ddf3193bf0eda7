"""Calibration error, likelihood, AUROC, temperature and the curve over pi, each against an independent calculation."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.coa.calibration import (
    BOUNDS,
    auroc,
    confidence_metrics,
    curve_over_pi,
    ece,
    fit_temperature,
    join,
    nll,
    predict,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def draw_labels(count: int, classes: int, seed: int = 0) -> Tensor:
    return torch.randint(classes, (count,), generator=torch.Generator().manual_seed(seed))


LOGITS, LABELS = 3 * draw(500, 7), draw_labels(500, 7)


# ---------------------------------------------------------------------------------------- ECE


def test_bins_include_only_their_upper_edge() -> None:
    """1/2 is in (0, 1/2]: together with 1/4 the two gaps cancel; in separate bins they would not."""
    confidence = torch.tensor([0.5, 0.25])
    assert ece(confidence, torch.tensor([True, False]), bins=2) == pytest.approx(0.125)
    assert ece(torch.tensor([0.5, 0.75]), torch.tensor([True, False]), bins=2) == pytest.approx((0.5 + 0.75) / 2)
    assert ece(torch.tensor([1.0, 0.0]), torch.tensor([True, False]), bins=2) == 0


def test_confidence_rounded_above_one_is_in_the_last_bin() -> None:
    """Together with another one there, the two gaps cancel; in separate bins they would not."""
    confidence = torch.tensor([1 + 1e-12, 0.9], dtype=torch.float64)
    assert ece(confidence, torch.tensor([False, True]), bins=2) == pytest.approx(0.45)


def test_ece_matches_a_loop_over_bins() -> None:
    found = predict(LOGITS, LABELS)
    wanted = 0.0
    for number in range(15):
        inside = [
            (float(confidence), bool(correct))
            for confidence, correct in zip(found.confidence, found.correct, strict=True)
            if number / 15 < confidence <= (number + 1) / 15
        ]
        if inside:
            mean = sum(confidence for confidence, _ in inside) / len(inside)
            share = sum(correct for _, correct in inside) / len(inside)
            wanted += len(inside) / len(LABELS) * abs(mean - share)
    assert wanted > 0.1
    assert ece(found.confidence, found.correct) == pytest.approx(wanted, abs=1e-12)


# ---------------------------------------------------------------------------------------- NLL and predictions


def test_nll_is_cross_entropy() -> None:
    found = predict(LOGITS, LABELS)
    assert nll(found.log_likelihood) == pytest.approx(float(F.cross_entropy(LOGITS.double(), LABELS)), abs=1e-12)
    assert torch.equal(found.correct, LOGITS.argmax(dim=1) == LABELS)
    torch.testing.assert_close(found.confidence, LOGITS.double().softmax(dim=1).max(dim=1).values)


@pytest.mark.parametrize("size", [1, 3, 100, 500, 1000])
def test_batches_change_nothing(size: int) -> None:
    batches = zip(LOGITS.split(size), LABELS.split(size), strict=True)
    for one, other in zip(join(predict(*batch) for batch in batches), predict(LOGITS, LABELS), strict=True):
        assert torch.equal(one, other)


def test_units_of_results() -> None:
    """Two images by hand, one correct at 0.75 and one wrong at 0.62: in percent, and in nats."""
    logits = torch.tensor([[0.75, 0.25], [0.62, 0.38]], dtype=torch.float64).log()
    metrics = confidence_metrics(predict(logits, torch.tensor([0, 1])))
    wanted = {"ece": (25 + 62) / 2, "nll": -(math.log(0.75) + math.log(0.38)) / 2}
    assert metrics == pytest.approx(wanted, rel=1e-12)


def test_half_precision_and_very_large_logits() -> None:
    half = predict(LOGITS.half(), LABELS)
    torch.testing.assert_close(half.confidence, LOGITS.half().double().softmax(dim=1).amax(dim=1))
    far = predict(torch.tensor([[0.0, -5000.0]]), torch.tensor([1]))
    assert float(far.log_likelihood) == -5000
    # A confidence that fp32 would round to 1 is still below one.
    assert float(predict(torch.tensor([[30.0, 0.0]]), torch.tensor([0])).confidence) < 1


# ---------------------------------------------------------------------------------------- AUROC


def brute_force(positive: Tensor, negative: Tensor) -> float:
    pairs = list(itertools.product(positive.tolist(), negative.tolist()))
    return sum((one > other) + (one == other) / 2 for one, other in pairs) / len(pairs)


@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_auroc_counts_pairs(levels: int) -> None:
    """Few levels make many ties."""
    positive = (draw(40, seed=1) * levels).round() / levels + 0.3
    negative = (draw(60, seed=2) * levels).round() / levels + 0.3
    found = auroc(positive, negative)
    assert found == pytest.approx(brute_force(positive, negative), abs=1e-15)
    assert auroc(negative, positive) == pytest.approx(1 - found, abs=1e-15)
    with pytest.raises(ValueError, match="at least one"):
        auroc(positive, torch.empty(0))
    for rising in (torch.exp, torch.atan, lambda x: 5 * x - 2):
        assert auroc(rising(positive.double()), rising(negative.double())) == pytest.approx(found, abs=1e-15)


# ---------------------------------------------------------------------------------------- temperature


def calibrated(temperature: float, count: int = 3000) -> tuple[Tensor, Tensor]:
    """Return logits that are too sharp by a factor, with labels drawn from the right probabilities."""
    logits = 2 * draw(count, 5, seed=3)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=torch.Generator().manual_seed(4))[:, 0]
    return logits * temperature, labels


@pytest.mark.parametrize("temperature", [0.2, 1.0, 6.0])
def test_fitted_temperature_matches_a_grid_search(temperature: float) -> None:
    logits, labels = calibrated(temperature)
    found = fit_temperature(logits, labels)
    grid = torch.linspace(math.log(BOUNDS[0]), math.log(BOUNDS[1]), 401).exp().tolist()
    grid += [found * 0.999, found * 1.001]
    losses = [float(F.cross_entropy(logits.double() / one, labels)) for one in grid]
    assert float(F.cross_entropy(logits.double() / found, labels)) < min(losses)
    assert found == pytest.approx(temperature, rel=0.1)
    assert found == fit_temperature(logits, labels)


def test_temperature_does_not_depend_on_the_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = calibrated(2.0, 100)
    whole = fit_temperature(logits, labels)
    monkeypatch.setattr("cocoamix.coa.calibration._ROWS", 7)
    assert fit_temperature(logits, labels) == pytest.approx(whole, rel=1e-9)


def test_temperature_of_few_images_with_close_logits() -> None:
    """The slope is small at the bounds, too: logits 0.1 apart, correct in three of four cases, or in one."""
    logits = torch.tensor([[0.1, 0.0]] * 4)
    assert fit_temperature(logits, torch.tensor([0, 0, 0, 1])) == pytest.approx(0.1 / math.log(3), rel=1e-6)
    assert fit_temperature(logits, torch.tensor([0, 1, 1, 1])) == BOUNDS[1]


def test_temperature_at_its_bounds() -> None:
    sure = 4 * F.one_hot(LABELS, 7).float()
    assert fit_temperature(sure, LABELS) == BOUNDS[0]
    assert fit_temperature(1000 * sure, LABELS) == BOUNDS[0]  # where the slope is 0 in fp64
    assert fit_temperature(sure, (LABELS + 1) % 7) == BOUNDS[1]
    assert fit_temperature(torch.ones(500, 7), LABELS) == 1
    assert fit_temperature(sure, LABELS, bounds=(0.5, 2)) == 0.5
    with pytest.raises(ValueError, match="at least one"):
        fit_temperature(torch.empty(0, 7), torch.empty(0, dtype=torch.long))


# ---------------------------------------------------------------------------------------- the curve over pi


def similarities(seed: int) -> Tensor:
    return draw(300, 9, seed=seed) / 20 + 0.05 * F.one_hot(draw_labels(300, 9), 9)


@pytest.mark.parametrize("one_stage", [False, True])
def test_curve_matches_evaluations_at_each_pi(monkeypatch: pytest.MonkeyPatch, one_stage: bool) -> None:
    """In one stage at the total scale of s_0/tau_0 + s_1/tau_1, with pi = tau_0/(tau_0 + tau_1)."""
    monkeypatch.setattr("cocoamix.coa.calibration._ROWS", 11)
    hand_crafted, learned, labels = similarities(5), similarities(6), draw_labels(300, 9)
    grid = [0.0, 0.3, 0.5, 0.9]
    curve = curve_over_pi(hand_crafted, learned, labels, 100.0, grid, one_stage)
    assert [point.pi for point in curve] == grid
    assert len({point.accuracy for point in curve}) > 2
    for point in curve:
        scale = 100 / (1 - point.pi) if one_stage else 100
        logits = scale * torch.lerp(hand_crafted.double(), learned.double(), point.pi)
        confidence, guess = logits.softmax(dim=1).max(dim=1)
        assert point.accuracy == pytest.approx(100 * float((guess == labels).double().mean()))
        assert point.nll == pytest.approx(float(F.cross_entropy(logits, labels)), rel=1e-5)
        assert point.ece == pytest.approx(100 * ece(confidence, guess == labels), rel=1e-4)
    assert curve_over_pi(hand_crafted, learned, labels, 100.0, [1.0])[0].pi == 1
