"""The mixture of CoCoA-Mix over the weight pi of the learned prompt, computed from checkpoints and stored features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cocoamix.coa.calibration import Point, curve_over_pi
from cocoamix.coa.heldout import fit_weight
from cocoamix.errors import UserError
from cocoamix.registry import plain_name

GRID = tuple(number / 50 for number in range(51))
_VIEWS = 10  # augmentations of each training image: enough for an average, even if training used more


@dataclass(frozen=True)
class Curve:
    """The mixture on one set of images, over GRID.

    Attributes:
        images: The name of the set.
        points: The mixture at CLIP's temperature.
        one_stage: The mixture at the scale of the one-stage form at each pi, which diverges at 1.
        lowest: The pi of the lowest cross-entropy.
        one_stage_lowest: The same at the scale of the one-stage form.
    """

    images: str
    points: list[Point]
    one_stage: list[Point]
    lowest: float
    one_stage_lowest: float

    @property
    def most_accurate(self) -> float:
        """The pi of the highest accuracy on GRID; of several, the lowest."""
        return max(self.points, key=lambda point: point.accuracy).pi


@dataclass(frozen=True)
class Weights:
    """The curves of one run."""

    folder: str
    dataset: str
    kind: str  # one stage, two stages, held-out
    shots: int
    seed: int
    pi_in: float
    curves: list[Curve]  # on training images and on evaluated images
    heldout: list[tuple[float, float]]  # pi and cross-entropy of a held-out fit, if there was one
    heldout_lowest: tuple[float, float] | None  # its minimum

    @property
    def images(self) -> tuple[str, int, int]:
        """A key that identifies the training images. Runs with the same key can be compared."""
        return self.dataset, self.shots, self.seed


# ---------------------------------------------------------------------------------------- the numbers


@torch.no_grad()
def compute(trainer: Any, folder: str) -> Weights:
    """Return the curves of a trainer with a loaded checkpoint."""
    split = trainer.cfg.TEST.SPLIT
    batches = [(trainer.encode(inputs), labels) for inputs, labels in trainer.test_batches(split)]
    features, labels = (torch.cat(side) for side in zip(*batches, strict=True))
    sides = {"training": trainer.training_features(_VIEWS), split: (features, labels)}
    hand_crafted, learned = trainer.hand_crafted_features().t(), trainer.text_features().t()
    curves = [
        _curve(images, features @ hand_crafted, features @ learned, labels, trainer.clip.logit_scale)
        for images, (features, labels) in sides.items()
    ]
    fitted = trainer.fitted()
    heldout = fitted.get("curve", [])
    kind = "one stage" if trainer.settings.STAGE == "one" else "held-out" if heldout else "two stages"
    return Weights(
        folder=folder,
        dataset=plain_name(trainer.cfg.DATASET.NAME),
        kind=kind,
        shots=int(trainer.cfg.DATASET.NUM_SHOTS),
        seed=int(trainer.seed),
        pi_in=trainer.learned_pi()[0],
        curves=curves,
        heldout=[(float(pi), float(nll)) for pi, nll in heldout],
        heldout_lowest=(float(fitted["pi_in"]), float(fitted["nll"])) if heldout else None,
    )


def _curve(images: str, hand_crafted: Tensor, learned: Tensor, labels: Tensor, logit_scale: float) -> Curve:
    hand_crafted, learned, labels = hand_crafted.double().cpu(), learned.double().cpu(), labels.cpu()
    if not torch.isfinite(hand_crafted).all() or not torch.isfinite(learned).all():
        raise UserError(f"The similarities of the {images} images are not finite: the model has diverged.")
    sides = hand_crafted, learned, labels, logit_scale
    return Curve(
        images,
        points=curve_over_pi(*sides, GRID),
        one_stage=curve_over_pi(*sides, GRID[:-1], one_stage=True),
        lowest=fit_weight(*sides),
        one_stage_lowest=fit_weight(*sides, one_stage=True),
    )


# ---------------------------------------------------------------------------------------- words and data


def describe(weights: Weights) -> str:
    """Describe the curves of a run in a sentence."""
    name = "held-out" if weights.heldout else "learned"
    lowest = " and ".join(f"{curve.lowest:.2f} on {curve.images} images" for curve in weights.curves)
    accurate = " and ".join(f"{curve.most_accurate:.2f}" for curve in weights.curves)
    scaled = " and ".join(f"{curve.one_stage_lowest:.2f}" for curve in weights.curves)
    return (
        f"{weights.folder} ({weights.dataset}, {weights.kind}, seed {weights.seed}): the {name} pi^in is "
        f"{weights.pi_in:.2f}; the cross-entropy is lowest at pi {lowest} at CLIP's temperature, and at {scaled} with "
        f"the scale of the one-stage form. The accuracy is highest at {accurate}."
    )


COLUMNS = (
    *("run", "dataset", "kind", "shots", "seed", "pi_in", "images", "lowest_pi", "one_stage_lowest_pi"),
    "most_accurate_pi",
    *("pi", "accuracy", "nll", "ece", "one_stage_nll", "one_stage_ece"),
)


def table(found: Sequence[Weights]) -> Iterator[tuple[Any, ...]]:
    """Yield the curves as rows of COLUMNS, one for each pi; missing values are empty."""
    for weights in found:
        about = (weights.folder, weights.dataset, weights.kind, weights.shots, weights.seed, weights.pi_in)
        yield from ((*about, *row) for row in _rows(weights))


def _rows(weights: Weights) -> Iterator[tuple[Any, ...]]:
    for curve in weights.curves:
        scaled = [(point.nll, point.ece) for point in curve.one_stage] + [("", "")]
        for point, values in zip(curve.points, scaled, strict=True):
            yield (curve.images, curve.lowest, curve.one_stage_lowest, curve.most_accurate, *point, *values)
    for pi, nll in weights.heldout:
        yield ("held-out", weights.pi_in, "", "", pi, "", nll, "", "", "")
