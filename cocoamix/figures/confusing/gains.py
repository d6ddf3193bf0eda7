"""The gain of one loss over another on the confusing test images of each dataset."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..kinds import Gathered, seeds_in_words
from ..loss_names import NAMES, Loss
from ..shared import nothing_shared
from .difficulty import ALL, CONFUSING, Difficulty, refuse_without_confusing
from .runs import BASE, Trained, split_dataset

if TYPE_CHECKING:
    from cocoamix.report.readers.runs import Inventory

COLUMNS = (
    *("dataset", "loss", "epoch", "seed", "confusing", "images"),
    *("baseline", "baseline_accuracy", "accuracy", "gain"),
)


@dataclass(frozen=True)
class Gain:
    """The gain of a loss in accuracy on the confusing images of a dataset, by seed.

    Attributes:
        difficulty: The parts of the dataset's base test images.
        loss: The loss.
        epoch: The epoch of the models of both losses; None if they were selected on validation images.
        before: The accuracies with the reference loss, in percent.
        after: The accuracies with this loss, in percent.
    """

    difficulty: Difficulty
    loss: Loss
    epoch: int | None
    before: list[float]
    after: list[float]

    @property
    def values(self) -> list[float]:
        """The gain of each seed, in points."""
        return [after - before for before, after in zip(self.before, self.after, strict=True)]

    @property
    def mean(self) -> float:
        """The mean gain over seeds."""
        return sum(self.values) / len(self.values)


def find_gains(
    inventory: Inventory, trained: Gathered[Trained], losses: Sequence[str], gap: float
) -> tuple[list[Gain], list[int | None]]:
    """Return the gains of each loss over the first one on confusing images, and the seeds that they are over."""
    points = _points_of_one_epoch(trained, losses)
    of_all = [set(trained.seeds(own, [dataset], BASE)) for dataset, own in points.items()]
    seeds = sorted(set.intersection(*of_all), key=lambda seed: (seed is None, seed or 0))
    if not seeds:
        raise nothing_shared(
            "seed",
            "on base classes",
            {
                f"{point.loss.title} on {dataset}": trained.cells[point][dataset, BASE]
                for dataset, own in points.items()
                for point in own
            },
        )
    gains, bare = [], []
    for dataset, own in points.items():
        difficulty = split_dataset(inventory, trained, dataset, gap)
        if not difficulty.count(CONFUSING):
            bare.append(difficulty)
            continue
        found = [
            [difficulty.accuracies(Path(trained.cells[point][dataset, BASE][seed].folder)) for seed in seeds]
            for point in own
        ]
        before, *others = ([one[CONFUSING] for one in of_seeds] for of_seeds in found)
        gains += [
            Gain(difficulty, point.loss, point.epoch, before, after)
            for point, after in zip(own[1:], others, strict=True)
        ]
    if not gains:
        refuse_without_confusing(bare[0])
    for difficulty in bare:
        print(f"Left out: {difficulty.dataset}, which has no confusing images.", file=sys.stderr)
    return gains, seeds


def _points_of_one_epoch(trained: Gathered[Trained], losses: Sequence[str]) -> dict[str, list[Trained]]:
    """Return the points of each dataset, by loss, at the last epoch that all losses have there."""
    from cocoamix.report.names import sort_datasets

    epochs: dict[str, dict[str, dict[int | None, Trained]]] = {}  # by dataset and loss
    by_loss: dict[str, list[str]] = {NAMES[name]: [] for name in losses}
    for point, cells in trained.cells.items():
        for dataset, subset in cells:
            if subset == BASE and point.loss.name in losses:
                epochs.setdefault(dataset, {}).setdefault(point.loss.name, {})[point.epoch] = point
    for dataset in sort_datasets(epochs):
        for name in epochs[dataset]:
            by_loss[NAMES[name]].append(dataset)
    datasets = [dataset for dataset in sort_datasets(epochs) if len(epochs[dataset]) == len(losses)]
    if not datasets:
        raise nothing_shared("dataset", "on base classes", by_loss)
    points, without = {}, []
    for dataset in datasets:
        own = epochs[dataset]
        shared = set.intersection(*(set(own[name]) for name in losses))
        if shared:
            # A model that was selected on validation images has no epoch, and is the final one of its training.
            last = None if None in shared else max(epoch or 0 for epoch in shared)
            points[dataset] = [own[name][last] for name in losses]
        else:
            found = {NAMES[name]: own[name] for name in losses}
            without.append(nothing_shared("epoch", f"on base classes of {dataset}", found))
    if not points:
        raise without[0]
    for error in without:
        print(f"Left out: {error}", file=sys.stderr)
    return points


def table(gains: Sequence[Gain], base: str, seeds: Sequence[int | None]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the data; `base` is the reference loss."""
    for gain in gains:
        counts = gain.difficulty.count(CONFUSING), gain.difficulty.count(ALL)
        for seed, before, after, value in zip(seeds, gain.before, gain.after, gain.values, strict=True):
            numbers = ["" if number is None else number for number in (gain.epoch, seed)]
            yield gain.difficulty.dataset, gain.loss.title, *numbers, *counts, base, before, after, value


def describe(gains: Sequence[Gain], base: str, seeds: Sequence[int | None]) -> str:
    """Describe the gain of each loss."""
    sentences = []
    for loss in dict.fromkeys(gain.loss for gain in gains):
        own = [gain for gain in gains if gain.loss == loss]
        by_dataset = [
            f"{gain.mean:+.1f} on {gain.difficulty.dataset} ({gain.difficulty.count(CONFUSING)} images)" for gain in own
        ]
        mean = sum(gain.mean for gain in own) / len(own)
        average = f", {mean:+.1f} on average" if len(own) > 1 else ""
        sentences.append(f"Accuracy of {loss.title} minus that of {base}, in points: {', '.join(by_dataset)}{average}.")
    gap = gains[0].difficulty.gap
    sentences.append(f"Over confusing base test images, wrong by less than {gap:g}; {_epochs_in_words(gains)}")
    return f"{' '.join(sentences)} ({seeds_in_words(seeds)})."


def _epochs_in_words(gains: Sequence[Gain]) -> str:
    """Describe which models are compared, by dataset if that differs."""
    epochs = {gain.difficulty.dataset: gain.epoch for gain in gains}
    words = {
        dataset: "models selected on validation images" if epoch is None else f"models of epoch {epoch}"
        for dataset, epoch in epochs.items()
    }
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return ", ".join(f"on {dataset} {which}" for dataset, which in words.items())
