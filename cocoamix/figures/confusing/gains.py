"""What a loss adds to another on the confusing test images of each dataset."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cocoamix.errors import UserError

from ..kinds import Gathered, seeds_in_words
from ..loss_names import Loss
from .difficulty import ALL, CONFUSING, Difficulty, refuse_without_confusing
from .runs import BASE, Trained, split_dataset

if TYPE_CHECKING:
    from cocoamix.report.readers.runs import Inventory

COLUMNS = ("dataset", "loss", "seed", "confusing", "images", "baseline", "baseline_accuracy", "accuracy", "gain")


@dataclass(frozen=True)
class Gain:
    """What a loss adds to the accuracy on confusing images of a dataset, in points, seed by seed.

    Attributes:
        difficulty: Of the dataset's base test images.
        loss: The loss.
        before: The accuracies with the loss that it is compared with, in percent.
        after: The accuracies with this one.
    """

    difficulty: Difficulty
    loss: Loss
    before: list[float]
    after: list[float]

    @property
    def values(self) -> list[float]:
        """The gain of each seed."""
        return [after - before for before, after in zip(self.before, self.after, strict=True)]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return sum(self.values) / len(self.values)


def find_gains(
    inventory: Inventory, trained: Gathered[Trained], losses: Sequence[str], gap: float
) -> tuple[list[Gain], list[int | None]]:
    """Return what each loss adds to the first one on confusing images, by dataset, and the seeds."""
    last: dict[str, Trained] = {}
    for point in trained.cells:
        held = last.get(point.loss.name)
        if held is None or (held.epoch is not None and (point.epoch is None or point.epoch > held.epoch)):
            last[point.loss.name] = point
    points = [last[name] for name in losses if name in last]
    datasets = trained.datasets(points, BASE)
    seeds = trained.seeds(points, datasets, BASE)
    if not datasets or not seeds:
        raise UserError("There is no dataset, or no seed, of which all losses have a run on base classes.")
    gains, bare = [], []
    for dataset in datasets:
        difficulty = split_dataset(inventory, trained, dataset, gap)
        if not difficulty.count(CONFUSING):
            bare.append(difficulty)
            continue
        found = [
            [difficulty.accuracies(Path(trained.cells[point][dataset, BASE][seed].folder)) for seed in seeds]
            for point in points
        ]
        before, *others = ([one[CONFUSING] for one in of_seeds] for of_seeds in found)
        gains += [Gain(difficulty, point.loss, before, after) for point, after in zip(points[1:], others, strict=True)]
    if not gains:
        refuse_without_confusing(bare[0])
    for difficulty in bare:
        print(f"Left out: {difficulty.dataset}, of which no image is confusing.", file=sys.stderr)
    return gains, seeds


def table(gains: Sequence[Gain], base: str, seeds: Sequence[int | None]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the data. base: the loss that the others are compared with."""
    for gain in gains:
        counts = gain.difficulty.count(CONFUSING), gain.difficulty.count(ALL)
        for seed, before, after, value in zip(seeds, gain.before, gain.after, gain.values, strict=True):
            number = "" if seed is None else seed
            yield gain.difficulty.dataset, gain.loss.title, number, *counts, base, before, after, value


def describe(gains: Sequence[Gain], base: str, seeds: Sequence[int | None]) -> str:
    """Say what each loss adds."""
    said = []
    for loss in dict.fromkeys(gain.loss for gain in gains):
        own = [gain for gain in gains if gain.loss == loss]
        by_dataset = [
            f"{gain.mean:+.1f} on {gain.difficulty.dataset} ({gain.difficulty.count(CONFUSING)} images)" for gain in own
        ]
        mean = sum(gain.mean for gain in own) / len(own)
        average = f", {mean:+.1f} on average" if len(own) > 1 else ""
        said.append(f"Accuracy of {loss.title} minus that of {base}, in points: {', '.join(by_dataset)}{average}.")
    gap = gains[0].difficulty.gap
    return f"{' '.join(said)} Over confusing base test images, wrong by less than {gap:g} ({seeds_in_words(seeds)})."
