"""Calibration metrics (ECE, NLL, AUROC), temperature scaling, and metrics of the mixture over pi.

The confidence of an image is its highest softmax probability. Everything is computed in fp64: in fp32, many images of
a sharp softmax tie at 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .mixture import mix_two

BINS = 15
BOUNDS = 0.05, 20.0  # of a temperature
_ROWS = 4096  # rows per chunk, because logits may be those of a whole dataset


class Predictions(NamedTuple):
    """Per-image summary of the logits of N images, on the CPU.

    Attributes:
        labels: (N,) labels.
        correct: (N,) whether the label has the highest logit.
        confidence: (N,) highest probability.
        log_likelihood: (N,) log-probability of the label.
    """

    labels: Tensor
    correct: Tensor
    confidence: Tensor
    log_likelihood: Tensor


def predict(logits: Tensor, labels: Tensor) -> Predictions:
    """Summarise (N, C) logits of images with (N,) labels."""
    log_p = logits.double().log_softmax(dim=1)
    # The arg-max of the logits, as for the accuracy: rounding in the softmax can create ties.
    columns = (
        labels,
        logits.argmax(dim=1) == labels,
        log_p.amax(dim=1).exp(),
        log_p.gather(1, labels[:, None])[:, 0],
    )
    return Predictions(*(column.cpu() for column in columns))


def join(parts: Iterable[Predictions]) -> Predictions:
    """Concatenate the predictions of several batches."""
    return Predictions(*(torch.cat(column) for column in zip(*parts, strict=True)))


def confidence_metrics(predictions: Predictions) -> dict[str, float]:
    """Return the ECE in percent and the NLL in nats, under their keys in results.json."""
    return {
        "ece": 100 * ece(predictions.confidence, predictions.correct),
        "nll": nll(predictions.log_likelihood),
    }


def ece(confidence: Tensor, correct: Tensor, bins: int = BINS) -> float:
    """Return the expected calibration error, between 0 and 1.

    Bins have equal width: (0, 1/bins], ..., (1 - 1/bins, 1]. The error is the mean of |accuracy - mean confidence|
    over the bins, weighted by their image counts.
    """
    confidence = confidence.double()
    indices = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    gaps = torch.bincount(indices, weights=confidence - correct.double(), minlength=bins)
    return float(gaps.abs().sum()) / len(confidence)


def nll(log_likelihood: Tensor) -> float:
    """Return the mean negative log-likelihood, in nats."""
    return -float(log_likelihood.double().mean())


def auroc(positive: Tensor, negative: Tensor) -> float:
    """Return the probability that a positive has a higher score than a negative; ties count half."""
    if not len(positive) or not len(negative):
        raise ValueError("AUROC needs at least one positive and one negative score")
    ordered = negative.sort().values
    below = torch.searchsorted(ordered, positive)
    not_above = torch.searchsorted(ordered, positive, right=True)
    return int((below + not_above).sum()) / (2 * len(positive) * len(negative))


# ---------------------------------------------------------------------------------------- temperature


def fit_temperature(logits: Tensor, labels: Tensor, bounds: tuple[float, float] = BOUNDS) -> float:
    """Return the T within `bounds` that minimises the NLL of softmax(logits / T).

    The NLL is convex in 1/T, so bisection on its slope finds the minimum. If the logits classify every image correctly,
    the minimum is at T = 0 and the result is the lower bound. If the NLL does not depend on T, T is 1 or the nearest
    bound.
    """
    if not len(labels):
        raise ValueError("A temperature needs at least one labelled image")
    low, high = (math.log(bound) for bound in bounds)
    if _slope(logits, labels, bounds[0]) <= 0:
        constant = _slope(logits, labels, bounds[1]) >= 0
        return min(max(1.0, bounds[0]), bounds[1]) if constant else bounds[0]
    if _slope(logits, labels, bounds[1]) >= 0:
        return bounds[1]
    for _ in range(50):
        middle = (low + high) / 2
        if _slope(logits, labels, math.exp(middle)) > 0:  # 1/T is too large
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _slope(logits: Tensor, labels: Tensor, temperature: float) -> float:
    """Return the derivative of the summed NLL with respect to 1/T: expected logit minus that of the label, summed."""
    total = 0.0
    for chunk, chunk_labels in zip(logits.split(_ROWS), labels.split(_ROWS), strict=True):
        shifted = chunk.double() - chunk.double().amax(dim=1, keepdim=True)
        expected = ((shifted / temperature).softmax(dim=1) * shifted).sum(dim=1)
        total += float((expected - shifted.gather(1, chunk_labels[:, None])[:, 0]).sum())
    return total


# ---------------------------------------------------------------------------------------- the mixture


class Point(NamedTuple):
    """Metrics of a mixture of two prompts.

    Attributes:
        pi: Weight of the learned prompt.
        accuracy: In percent.
        nll: Mean negative log-likelihood, in nats.
        ece: Expected calibration error, in percent.
    """

    pi: float
    accuracy: float
    nll: float
    ece: float


def curve_over_pi(
    hand_crafted: Tensor,
    learned: Tensor,
    labels: Tensor,
    logit_scale: float,
    grid: Sequence[float],
    one_stage: bool = False,
) -> list[Point]:
    """Return the metrics of the mixture at each pi of a grid.

    Args:
        hand_crafted: (N, C) similarities of the hand-crafted prompt, weighted by 1 - pi.
        learned: (N, C) similarities of the learned prompt, weighted by pi.
        labels: (N,) labels.
        logit_scale: CLIP's 1/tau.
        grid: Values of pi.
        one_stage: Use the total scale of the one-stage form, logit_scale / (1 - pi). The grid must then end before 1.
    """
    return [_point(hand_crafted, learned, labels, logit_scale / (1 - pi if one_stage else 1), pi) for pi in grid]


def _point(hand_crafted: Tensor, learned: Tensor, labels: Tensor, scale: float, pi: float) -> Point:
    chunks = zip(hand_crafted.split(_ROWS), learned.split(_ROWS), labels.split(_ROWS), strict=True)
    predictions = join(predict(scale * mix_two(s0.double(), s1.double(), pi), y) for s0, s1, y in chunks)
    metrics = confidence_metrics(predictions)
    return Point(pi, 100 * float(predictions.correct.double().mean()), metrics["nll"], metrics["ece"])
