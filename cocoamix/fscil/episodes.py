"""Episodes of a session's images: some classes with few images to adapt to, and a query to learn from.

An episode depends on the seed, the session and the number of its step alone, so that a run that is resumed draws the
same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.utils.data import Sampler

from cocoamix.seeding import derive_seed


@dataclass(frozen=True)
class Episode:
    """Positions of images in a session.

    Attributes:
        support: What is adapted to, class after class.
        query: What is learned from; an image may be there twice.
    """

    support: tuple[int, ...]
    query: tuple[int, ...]


@dataclass(frozen=True)
class EpisodeSize:
    """How large episodes are. All are limits: a session may have less.

    Attributes:
        ways: Classes of the support.
        shots: Images of each of them in the support.
        others: Other images of each of them in the query.
        batch: Images of any class in the query.
    """

    ways: int
    shots: int
    others: int
    batch: int


class EpisodeSampler(Sampler[list[int]]):
    """The episodes of a block of steps, each as a batch: its support, then its query.

    Attributes:
        seed: What episodes are drawn from, beside the session and the step.
        block: The block that is gone through next.

    Args:
        labels: Of the session's images.
        steps: Of the session, in all.
        block_steps: Steps of a block; the last may have fewer.
    """

    def __init__(self, labels: Sequence[int], size: EpisodeSize, session: int, steps: int, block_steps: int) -> None:
        self.size, self.session, self.steps, self.block_steps = size, session, steps, block_steps
        self.seed = self.block = 0
        self._count = len(labels)
        self._places: dict[int, list[int]] = {}
        for place, label in enumerate(labels):
            self._places.setdefault(label, []).append(place)

    @property
    def blocks(self) -> int:
        """How many blocks the session has."""
        return -(-self.steps // self.block_steps)

    @property
    def numbers(self) -> range:
        """The steps of the present block."""
        first = self.block * self.block_steps
        return range(first, min(first + self.block_steps, self.steps))

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[list[int]]:
        for number in self.numbers:
            episode = self.draw(number)
            yield [*episode.support, *episode.query]

    def draw(self, step: int) -> Episode:
        """Return the episode of a step."""
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "episode", self.session, step))

        def shuffle(places: Sequence[int]) -> list[int]:
            return [places[number] for number in torch.randperm(len(places), generator=generator).tolist()]

        support: list[int] = []
        others: list[int] = []
        for label in shuffle(list(self._places))[: self.size.ways]:
            places, shots = shuffle(self._places[label]), self.size.shots
            support += places[:shots]
            others += places[shots : shots + self.size.others]
        return Episode(tuple(support), (*shuffle(range(self._count))[: self.size.batch], *others))
