"""Accuracy, macro F1, per-class accuracy and the confusion matrix."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
import torch
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.io.files import write_atomically


class Classification:
    """One label per image; the class with the highest logit is the prediction."""

    def __init__(self, cfg: CfgNode, lab2cname: Mapping[int, str] | None = None) -> None:
        self.cfg = cfg
        if cfg.TEST.PER_CLASS_RESULT and lab2cname is None:
            raise ValueError("TEST.PER_CLASS_RESULT needs the class names (lab2cname)")
        self._lab2cname = lab2cname or {}
        self.reset()

    def reset(self) -> None:
        """Begin a new evaluation."""
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
