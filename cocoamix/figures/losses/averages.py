"""Average accuracies over the datasets and seeds that all points of a figure share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..kinds import Gathered, seeds_in_words
from ..shared import nothing_shared


class Named(Protocol):
    """A point of a figure, with a name for messages."""

    @property
    def full_title(self) -> str:
        """The name, with the setting if there is one."""
        ...

    def __hash__(self) -> int:
        """The hash, for use as a key."""
        ...


Point = TypeVar("Point", bound=Named)


@dataclass(frozen=True)
class Average:
    """The accuracies of a point in percent, by dataset and seed. All points share datasets and seeds."""

    accuracy: Mapping[str, Mapping[int | None, float]]

    @property
    def values(self) -> list[float]:
        """The mean over datasets for each seed."""
        by_dataset = list(self.accuracy.values())
        return [sum(one[seed] for one in by_dataset) / len(by_dataset) for seed in by_dataset[0]]

    @property
    def mean(self) -> float:
        """The mean over datasets and seeds."""
        return sum(self.values) / len(self.values)


def average(found: Gathered[Point], points: Sequence[Point], subset: str) -> dict[Point, Average]:
    """Return the accuracies of points on base or new classes of the datasets that all of them share."""
    datasets = found.datasets(points, subset)
    seeds = found.seeds(points, datasets, subset)
    if not datasets:
        own = {point.full_title: found.datasets([point], subset) for point in points}
        raise nothing_shared("dataset", f"on {subset} classes", own)
    if not seeds:
        by_dataset = {
            f"{point.full_title} on {dataset}": found.cells[point][dataset, subset]
            for point in points
            for dataset in datasets
        }
        raise nothing_shared("seed", f"on {subset} classes", by_dataset)
    averages = {}
    for point in points:
        cells = found.cells[point]
        averages[point] = Average(
            {dataset: {seed: cells[dataset, subset][seed].accuracy for seed in seeds} for dataset in datasets}
        )
    return averages


def describe_scope(one: Average) -> str:
    """Describe the datasets and seeds that an average is over."""
    datasets, seeds = list(one.accuracy), list(next(iter(one.accuracy.values())))
    where = datasets[0] if len(datasets) == 1 else f"average over {', '.join(datasets)}"
    return f"{where}; {seeds_in_words(seeds)}"
