"""Mixture weight pi^in and temperature fitted to held-out images. Beyond the paper: see docs/WEIGHTS.md.

The training images are split into folds, and for each fold a prompt is tuned without its images. The similarities of
these prompts on the held-out images estimate those of the final prompt on unseen images. First the weight pi of the
learned prompt, then a temperature of the mixture is chosen to minimise the cross-entropy on them. Both problems are
convex with a slope in closed form, so bisection finds the minimum in a fixed number of steps.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .calibration import curve_over_pi, fit_temperature
from .mixture import mix_two

FOLDS = 4
MIN_PI = 1e-6  # smallest weight of either prompt, so that its log-odds are finite
_BISECTIONS = 60
_CURVE_POINTS = 21


def count_folds(labels: Sequence[int]) -> int:
    """Return the number of folds: 4, or fewer if a class has fewer images; 0 if a class has a single image."""
    smallest = min(Counter(labels).values(), default=0)
    return min(FOLDS, smallest) if smallest > 1 else 0


def assign_folds(labels: Sequence[int], folds: int, seed: int) -> list[int]:
    """Return the fold that holds out each image.

    The images of each class are shuffled and assigned to the folds in turn, starting where the previous class ended.
    """
    generator = random.Random(seed)
    fold_of = [0] * len(labels)
    turn = 0
    for label in sorted(set(labels)):
        indices = [index for index, other in enumerate(labels) if other == label]
        generator.shuffle(indices)
        for index in indices:
            fold_of[index] = turn % folds
            turn += 1
    return fold_of


@dataclass(frozen=True)
class Fit:
    """The weight and temperature fitted to held-out similarities, and the mean cross-entropy (NLL) on them."""

    images: int
    pi_in: float
    nll: float  # at pi_in and CLIP's temperature
    temperature: float  # tau of the mixture at pi_in; CLIP's is 1 / logit_scale
    calibrated_nll: float  # at pi_in and `temperature`
    curve: list[list[float]]  # pairs of pi and the cross-entropy at CLIP's temperature
    confidence: list[float]  # 0th to 100th percentile of the highest probability, at pi_in and `temperature`

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)


def fit(hand_crafted: Tensor, learned: Tensor, labels: Tensor, logit_scale: float) -> Fit:
    """Fit the weight, then the temperature, to (N, C) similarities of the hand-crafted and the learned prompts."""
    hand_crafted, learned, labels = hand_crafted.double().cpu(), learned.double().cpu(), labels.cpu()
    pi = fit_weight(hand_crafted, learned, labels, logit_scale)
    mixed = mix_two(hand_crafted, learned, pi)
    scale = logit_scale / fit_temperature(logit_scale * mixed, labels)
    points = [number / (_CURVE_POINTS - 1) for number in range(_CURVE_POINTS)]
    curve = curve_over_pi(hand_crafted, learned, labels, logit_scale, points)
    return Fit(
        images=len(labels),
        pi_in=pi,
        nll=cross_entropy(mixed, labels, logit_scale),
        temperature=1 / scale,
        calibrated_nll=cross_entropy(mixed, labels, scale),
        curve=[[point.pi, point.nll] for point in curve],
        confidence=_percentiles((scale * mixed).softmax(dim=1).amax(dim=1)),
    )


def _percentiles(values: Tensor) -> list[float]:
    """Return the 0th to the 100th percentile, interpolated."""
    percentiles: list[float] = values.quantile(torch.linspace(0, 1, 101, dtype=values.dtype)).tolist()
    return percentiles


def fit_weight(
    hand_crafted: Tensor, learned: Tensor, labels: Tensor, logit_scale: float, one_stage: bool = False
) -> float:
    """Return the pi in [MIN_PI, 1 - MIN_PI] that minimises the cross-entropy of (1 - pi) s_0 + pi s_1.

    With `one_stage`, the scale is that of the one-stage form at that pi, logit_scale / (1 - pi), so the logits are
    logit_scale (s_0 + r s_1) with r = pi / (1 - pi). The cross-entropy is convex in r, and r grows with pi, so
    the slope in pi also changes sign only once.
    """
    step = learned if one_stage else learned - hand_crafted
    gap = step - step.gather(1, labels[:, None])

    def slope(pi: float) -> float:
        along = pi / (1 - pi) if one_stage else pi
        p = (logit_scale * (hand_crafted + along * step)).softmax(dim=1)
        return float((p * gap).sum(dim=1).mean())

    return _minimise(slope, MIN_PI, 1 - MIN_PI)


def cross_entropy(similarities: Tensor, labels: Tensor, scale: float) -> float:
    """Return the mean cross-entropy of (N, C) similarities at 1/tau = scale."""
    return float(F.cross_entropy(scale * similarities, labels))


def _minimise(slope: Callable[[float], float], low: float, high: float) -> float:
    """Return where a convex function is smallest on [low, high], by bisection on its slope; the middle if flat."""
    if slope(low) > 0:
        return low
    if slope(high) < 0:
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        slope_there = slope(middle)
        if slope_there == 0:
            return middle
        low, high = (middle, high) if slope_there < 0 else (low, middle)
    return (low + high) / 2
