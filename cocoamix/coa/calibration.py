"""How well confidence matches the truth: calibration error, likelihood, and telling trained classes from others.

The probabilities of an image are the softmax of its logits, and its confidence is the highest of them. All is computed
in fp64: in fp32 many images of a sharp softmax tie at 1.
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
_ROWS = 4096  # that are taken at once where logits of a whole dataset come in


class Predictions(NamedTuple):
    """All that is kept of the logits of N images. On the CPU."""

    labels: Tensor  # (N,)
    correct: Tensor  # (N,) whether the highest logit is that of the label
    confidence: Tensor  # (N,) highest probability
    log_likelihood: Tensor  # (N,) log-probability of the label


def predict(logits: Tensor, labels: Tensor) -> Predictions:
    """Return what (N, C) logits predict of images with (N,) labels."""
    log_p = logits.double().log_softmax(dim=1)
    # The logits' own arg-max, as that of the accuracy: rounding in the softmax may make ties.
    found = (
        labels,
        logits.argmax(dim=1) == labels,
        log_p.amax(dim=1).exp(),
        log_p.gather(1, labels[:, None])[:, 0],
    )
    return Predictions(*(each.cpu() for each in found))


def join(parts: Iterable[Predictions]) -> Predictions:
    """Return the predictions of all batches as one."""
    return Predictions(*(torch.cat(each) for each in zip(*parts, strict=True)))


def confidence_metrics(predictions: Predictions) -> dict[str, float]:
    """Return the ECE in percent and the NLL in nats, under their names in results.json."""
    return {
        "ece": 100 * ece(predictions.confidence, predictions.correct),
        "nll": nll(predictions.log_likelihood),
    }


def ece(confidence: Tensor, correct: Tensor, bins: int = BINS) -> float:
    """Return the expected calibration error, between 0 and 1.

    The confidence is cut into bins of equal width, (0, 1/bins], ..., (1 - 1/bins, 1]. The error is the mean over bins,
    weighted by their numbers of images, of |accuracy - mean confidence|.
    """
    confidence = confidence.double()
    places = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    gaps = torch.bincount(places, weights=confidence - correct.double(), minlength=bins)
    return float(gaps.abs().sum()) / len(confidence)


def nll(log_likelihood: Tensor) -> float:
    """Return the mean negative log-likelihood, in nats."""
    return -float(log_likelihood.double().mean())


def auroc(positive: Tensor, negative: Tensor) -> float:
    """Return the chance that a score of a positive is above one of a negative; ties count half."""
    if not len(positive) or not len(negative):
        raise ValueError("AUROC needs at least one score of each kind")
    ordered = negative.sort().values
    below = torch.searchsorted(ordered, positive)
    not_above = torch.searchsorted(ordered, positive, right=True)
    return int((below + not_above).sum()) / (2 * len(positive) * len(negative))


# ---------------------------------------------------------------------------------------- temperature


def fit_temperature(logits: Tensor, labels: Tensor, bounds: tuple[float, float] = BOUNDS) -> float:
    """Return the T within `bounds` that minimises the NLL of softmax(logits / T).

    The NLL is convex in 1/T, so that its slope has one change of sign, which bisection finds. Logits that get every
    label right want T = 0 and take the lower bound; where T changes nothing it is 1, or the bound nearest to it.
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
    """Return the derivative of the summed NLL by 1/T: the expected minus the label's logit, over all images."""
    total = 0.0
    for some, theirs in zip(logits.split(_ROWS), labels.split(_ROWS), strict=True):
        shifted = some.double() - some.double().amax(dim=1, keepdim=True)
        expected = ((shifted / temperature).softmax(dim=1) * shifted).sum(dim=1)
        total += float((expected - shifted.gather(1, theirs[:, None])[:, 0]).sum())
    return total


# ---------------------------------------------------------------------------------------- the mixture


class Point(NamedTuple):
    """A mixture of two prompts. Accuracy and ECE in percent, NLL in nats."""

    pi: float
    accuracy: float
    nll: float
    ece: float


def curve_over_pi(
    general: Tensor,
    special: Tensor,
    labels: Tensor,
    logit_scale: float,
    grid: Sequence[float],
    one_stage: bool = False,
) -> list[Point]:
    """Return what each pi of a grid gives, where pi weighs the special prompt and 1 - pi the general one.

    general, special: (N, C) similarities of the two prompts.
    one_stage: with the scale that the one-stage form has at that pi, logit_scale / (1 - pi); the grid ends before 1.
    """
    return [_point(general, special, labels, logit_scale / (1 - pi if one_stage else 1), pi) for pi in grid]


def _point(general: Tensor, special: Tensor, labels: Tensor, scale: float, pi: float) -> Point:
    batches = zip(general.split(_ROWS), special.split(_ROWS), labels.split(_ROWS), strict=True)
    found = join(predict(scale * mix_two(one.double(), other.double(), pi), theirs) for one, other, theirs in batches)
    metrics = confidence_metrics(found)
    return Point(pi, 100 * float(found.correct.double().mean()), metrics["nll"], metrics["ece"])
