"""One evaluation: accuracy, and the calibration of the probabilities."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from yacs.config import CfgNode

from cocoamix.coa import calibration
from cocoamix.coa.calibration import Predictions
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.io.files import write_atomically

from .images import RunImages
from .predictions import paths_at


class NotFiniteError(UserError):
    """Logits are not finite. The cause is diverged training, unless the trainer finds another one."""


class Evaluation:
    """Collects the predictions of one label space.

    Args:
        cfg: The configuration.
        lab2cname: The class name of each label.
        where: What is evaluated, for error messages, such as "of the test set".
    """

    def __init__(self, cfg: CfgNode, lab2cname: Mapping[int, str], where: str) -> None:
        self.evaluator, self.where = Classification(cfg, lab2cname), where
        self._parts: list[Predictions] = []

    def add(self, logits: Tensor, labels: Tensor) -> int:
        """Add a batch; return the number of correct predictions."""
        if not torch.isfinite(logits).all():
            raise NotFiniteError(f"The logits {self.where} are not finite: the model has diverged.")
        self.evaluator.process(logits, labels)
        self._parts.append(calibration.predict(logits, labels))
        return int(self._parts[-1].correct.sum())

    def add_all(
        self, images: RunImages, split: str, logits_of: Callable[[Tensor], Tensor], classes: Sequence[str], file: Any
    ) -> None:
        """Add all readable images of `val` or `test`.

        Args:
            images: The images of the run.
            split: The split.
            logits_of: Returns the logits of images or stored features.
            classes: The classes, to explain logits that are not finite.
            file: The file of predictions, or None.
        """
        loader = images.loader(split)
        for inputs, labels, indices in images.batches(loader, split):
            logits = logits_of(inputs)
            try:
                self.add(logits, labels)
            except NotFiniteError as error:
                raise images.fault(inputs, classes) or error from None
            if file is not None:
                file.add(logits, labels, paths_at(loader, indices))
        if file is not None:
            file.add_unreadable(loader, images.unreadable)
        images.print_skipped()

    @property
    def predictions(self) -> Predictions:
        """The predictions of all images."""
        return calibration.join(self._parts)

    def accuracies(self) -> dict[str, float]:
        """Print and return the accuracy and its relatives."""
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


class Classification:
    """Accuracy, macro F1, per-class accuracy and the confusion matrix, with Dassl's keys and lines.

    Args:
        cfg: The configuration.
        lab2cname: The class name of each label.
    """

    def __init__(self, cfg: CfgNode, lab2cname: Mapping[int, str]) -> None:
        self.cfg, self._lab2cname = cfg, lab2cname
        self._y_true: list[int] = []
        self._y_pred: list[int] = []

    def process(self, mo: torch.Tensor, gt: torch.Tensor) -> None:
        """Add a batch: logits `mo` [batch, classes] and labels `gt` [batch]."""
        self._y_pred += mo.argmax(dim=1).tolist()
        self._y_true += gt.tolist()

    def evaluate(self) -> OrderedDict[str, float]:
        """Print and return the results; the accuracy comes first, as `test()` returns the first."""
        if not self._y_true:
            raise UserError("Nothing was evaluated: the set holds no images. Check the dataset and its split.")
        true, pred = np.array(self._y_true), np.array(self._y_pred)
        hit = true == pred
        accuracy = 100.0 * hit.mean()
        results = OrderedDict(accuracy=accuracy, error_rate=100.0 - accuracy, macro_f1=_macro_f1(true, pred))
        print(
            "=> result\n"
            f"* total: {len(true):,}\n"
            f"* correct: {hit.sum():,}\n"
            f"* accuracy: {results['accuracy']:.2f}%\n"
            f"* error: {results['error_rate']:.2f}%\n"
            f"* macro_f1: {results['macro_f1']:.2f}%"
        )
        if self.cfg.TEST.PER_CLASS_RESULT:
            results["perclass_accuracy"] = self._per_class(true, hit)
        if self.cfg.TEST.COMPUTE_CMAT:
            path = os.path.join(self.cfg.OUTPUT_DIR, "cmat.pt")
            matrix = checkpoints.to_bytes(torch.from_numpy(_confusion_matrix(true, pred)))
            write_atomically(path, lambda file: file.write(matrix))
            print(f"Saved the confusion matrix as {path}")
        return OrderedDict((name, float(value)) for name, value in results.items())

    def _per_class(self, true: np.ndarray, hit: np.ndarray) -> float:
        print("=> per-class result")
        accuracies = []
        for label in np.unique(true).tolist():
            of_class = hit[true == label]
            accuracies.append(100.0 * of_class.mean())
            print(
                f"* class: {label} ({self._lab2cname[label]})\ttotal: {len(of_class):,}\t"
                f"correct: {of_class.sum():,}\tacc: {accuracies[-1]:.2f}%"
            )
        average = float(np.mean(accuracies))
        print(f"* average: {average:.2f}%")
        return average


def _macro_f1(true: np.ndarray, pred: np.ndarray) -> float:
    """Return the mean F1 in percent over the classes that occur in the ground truth."""
    scores = []
    for label in np.unique(true):
        is_class, is_predicted = true == label, pred == label
        scores.append(2 * (is_class & is_predicted).sum() / (is_class.sum() + is_predicted.sum()))
    return 100.0 * float(np.mean(scores))


def _confusion_matrix(true: np.ndarray, pred: np.ndarray) -> np.ndarray:
    """Return the matrix of true (rows) and predicted classes. A row sums to 1, or to 0 for a class without images."""
    labels, index = np.unique(np.concatenate([true, pred]), return_inverse=True)
    counts = np.zeros((len(labels), len(labels)))
    np.add.at(counts, (index[: len(true)], index[len(true) :]), 1)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
