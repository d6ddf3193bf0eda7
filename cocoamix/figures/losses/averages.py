"""Accuracies averaged over the datasets and seeds that all points of a figure have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from cocoamix.errors import UserError

from ..kinds import Gathered, seeds_in_words

Point = TypeVar("Point")


@dataclass(frozen=True)
class Average:
    """The accuracies of a point in percent, by dataset and seed: the same datasets and seeds as of the others."""

    accuracy: Mapping[str, Mapping[int | None, float]]

    @property
    def values(self) -> list[float]:
        """The mean over datasets, seed by seed."""
        by_dataset = list(self.accuracy.values())
        return [sum(one[seed] for one in by_dataset) / len(by_dataset) for seed in by_dataset[0]]

    @property
    def mean(self) -> float:
        """Over datasets and seeds."""
        return sum(self.values) / len(self.values)


def average(found: Gathered[Point], points: Sequence[Point], subset: str) -> dict[Point, Average]:
    """Return the accuracies of some points on base or new classes of the datasets that all of them have."""
    datasets = found.datasets(points, subset)
    seeds = found.seeds(points, datasets, subset)
    if not datasets or not seeds:
        raise UserError(f"There is no dataset, or no seed, of which all runs of the figure have {subset} classes.")
    averages = {}
    for point in points:
        cells = found.cells[point]
        averages[point] = Average(
            {dataset: {seed: cells[dataset, subset][seed].accuracy for seed in seeds} for dataset in datasets}
        )
    return averages


def over_what(some: Average) -> str:
    """Say what an average is over."""
    datasets, seeds = list(some.accuracy), list(next(iter(some.accuracy.values())))
    where = datasets[0] if len(datasets) == 1 else f"average over {', '.join(datasets)}"
    return f"{where}; {seeds_in_words(seeds)}"
