"""One evaluation: accuracy by Dassl's evaluator, and the calibration of the probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cocoamix.coa import calibration
from cocoamix.coa.calibration import Predictions
from cocoamix.errors import UserError


class NotFiniteError(UserError):
    """Logits are not finite. The cause is diverged training, unless the trainer finds another one."""


class Evaluation:
    """Collects the predictions of one label space.

    Args:
        evaluator: Dassl's evaluator.
        where: What is evaluated, for error messages, such as "of the test set".
    """

    def __init__(self, evaluator: Any, where: str) -> None:
        self.evaluator, self.where = evaluator, where
        self._parts: list[Predictions] = []

    def add(self, logits: Tensor, labels: Tensor) -> int:
        """Add a batch; return the number of correct predictions."""
        if not torch.isfinite(logits).all():
            raise NotFiniteError(f"The logits {self.where} are not finite: the model has diverged.")
        self.evaluator.process(logits, labels)
        self._parts.append(calibration.predict(logits, labels))
        return int(self._parts[-1].correct.sum())

    @property
    def predictions(self) -> Predictions:
        """The predictions of all images."""
        return calibration.join(self._parts)

    def accuracies(self) -> dict[str, float]:
        """Print and return what Dassl's evaluator measures."""
        return dict(self.evaluator.evaluate())

    def confidence(self) -> dict[str, float]:
        """Print and return the calibration error and the negative log-likelihood."""
        return print_metrics(calibration.confidence_metrics(self.predictions))


def joint_metrics(predictions: Predictions, owned: Tensor) -> dict[str, float]:
    """Print and return metrics for trained and other classes that share a label space; empty if they do not.

    These are the accuracy on each, their harmonic mean, and the AUROC of separating them by confidence: the percentage
    of pairs in which the image of a trained class has the higher confidence.

    Args:
        predictions: The predictions for all images.
        owned: (C,) whether each class was trained on.
    """
    trained = owned[predictions.labels]
    sides = [predictions.correct[side] for side in (trained, ~trained)]
    if not all(map(len, sides)):
        return {}
    base, new = (100 * int(side.sum()) / len(side) for side in sides)
    mean = 2 * base * new / (base + new) if base + new else 0.0
    print(f"* base and new in one label space: base {base:.2f}%, new {new:.2f}%, H {mean:.2f}%")
    found = {"base_accuracy": base, "new_accuracy": new, "harmonic_mean": mean}
    confidence = predictions.confidence
    return found | print_metrics({"auroc": 100 * calibration.auroc(confidence[trained], confidence[~trained])})


def print_metrics(metrics: dict[str, float]) -> dict[str, float]:
    """Print confidence metrics in the format of CoOp's evaluator, and return them."""
    for key, value in metrics.items():
        print(f"* {key}: {value:.4f}" if key == "nll" else f"* {key}: {value:.2f}%")
    return metrics
