"""Weights fitted to images that the prompt has not seen.

The training images are dealt into folds. A prompt is tuned without each of them, and what it says of the images that
were left out stands for what the final prompt, tuned on all, says of images that it has not seen. One weight pi of the
learned prompt, and then one temperature of the mixture, are fitted to the cross-entropy of these. Both problems are
convex, and their slopes are known in closed form, so that bisection finds the one minimum in a fixed number of steps.
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
LEAST_SHARE = 1e-6  # of either prompt, so that its log-odds are finite
_BISECTIONS = 60
_CURVE_POINTS = 21


def count_folds(labels: Sequence[int]) -> int:
    """Return the number of folds: 4, or the shots of the smallest class; 0 where a class has a single image."""
    smallest = min(Counter(labels).values(), default=0)
    return min(FOLDS, smallest) if smallest > 1 else 0


def deal_into_folds(labels: Sequence[int], folds: int, seed: int) -> list[int]:
    """Return the fold that each image is left out in.

    The images of a class are shuffled and dealt in turn, each class beginning where the one before it ended.
    """
    generator = random.Random(seed)
    found = [0] * len(labels)
    turn = 0
    for label in sorted(set(labels)):
        indices = [index for index, other in enumerate(labels) if other == label]
        generator.shuffle(indices)
        for index in indices:
            found[index] = turn % folds
            turn += 1
    return found


@dataclass(frozen=True)
class Fit:
    """What was fitted to held-out similarities, and the mean cross-entropy there."""

    images: int
    pi_in: float
    nll: float  # at pi_in and CLIP's temperature
    temperature: float  # tau of the mixture with pi_in, as CLIP's own is 1 / logit_scale
    calibrated_nll: float  # at both
    curve: list[list[float]]  # pairs of pi and the cross-entropy at CLIP's temperature
    confidence: list[float]  # the 0th to the 100th percentile of the highest probability, at both

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def fit(general: Tensor, special: Tensor, labels: Tensor, logit_scale: float) -> Fit:
    """Fit the weight, then the temperature, to (N, C) similarities of the hand-crafted and of the learned prompts."""
    general, special, labels = general.double().cpu(), special.double().cpu(), labels.cpu()
    pi = fit_weight(general, special, labels, logit_scale)
    mixed = mix_two(general, special, pi)
    scale = logit_scale / fit_temperature(logit_scale * mixed, labels)
    points = [number / (_CURVE_POINTS - 1) for number in range(_CURVE_POINTS)]
    curve = curve_over_pi(general, special, labels, logit_scale, points)
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
    found: list[float] = values.quantile(torch.linspace(0, 1, 101, dtype=values.dtype)).tolist()
    return found


def fit_weight(general: Tensor, special: Tensor, labels: Tensor, logit_scale: float, one_stage: bool = False) -> float:
    """Return the pi, between LEAST_SHARE and one minus it, at which (1 - pi) general + pi special does best.

    one_stage: with the scale that the one-stage form has at that pi, logit_scale / (1 - pi). That makes general + r
    special at CLIP's scale. Their cross-entropy is convex in r = pi / (1 - pi), which grows with pi: its slope has one
    change of sign in pi, too.
    """
    step = special if one_stage else special - general
    gap = step - _of_labels(step, labels)

    def slope(pi: float) -> float:
        along = pi / (1 - pi) if one_stage else pi
        p = (logit_scale * (general + along * step)).softmax(dim=1)
        return float((p * gap).sum(dim=1).mean())

    return _lowest(slope, LEAST_SHARE, 1 - LEAST_SHARE)


def cross_entropy(similarities: Tensor, labels: Tensor, scale: float) -> float:
    """Return the mean cross-entropy of (N, C) similarities at 1/tau = scale."""
    return float(F.cross_entropy(scale * similarities, labels))


def _of_labels(similarities: Tensor, labels: Tensor) -> Tensor:
    """Return the (N, 1) similarities of the right classes."""
    return similarities.gather(1, labels[:, None])


def _lowest(slope: Callable[[float], float], low: float, high: float) -> float:
    """Return where a convex function is lowest between two numbers, by the sign of its slope; their middle if flat."""
    if slope(low) > 0:
        return low
    if slope(high) < 0:
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        at = slope(middle)
        if at == 0:
            return middle
        low, high = (middle, high) if at < 0 else (low, middle)
    return (low + high) / 2
