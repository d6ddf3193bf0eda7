"""Episodes of a session's images: a support set with a few images of some classes, and a query set.

An episode depends only on the seed, the session and the step, so a resumed run draws the same episodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.utils.data import Sampler

from cocoamix.seeding import derive_seed


@dataclass(frozen=True)
class Episode:
    """Indices of images in a session.

    Attributes:
        support: Images of the inner loop, class by class.
        query: Images of the outer step; an image may occur twice.
    """

    support: tuple[int, ...]
    query: tuple[int, ...]


@dataclass(frozen=True)
class EpisodeSize:
    """Sizes of an episode. All are upper limits: a session may have fewer images.

    Attributes:
        ways: Classes of the support.
        shots: Images per class in the support.
        others: Further images of each of these classes, in the query.
        batch: Images of any class, in the query.
    """

    ways: int
    shots: int
    others: int
    batch: int


class EpisodeSampler(Sampler[list[int]]):
    """Yields the episodes of a block of steps as batches, the support first, then the query.

    Attributes:
        seed: Seed of the episodes.
        block: Index of the current block.

    Args:
        labels: Labels of the session's images.
        size: Sizes of the episodes.
        session: Number of the session.
        steps: Steps of the session.
        block_steps: Steps of a block; the last block may have fewer.
    """

    def __init__(self, labels: Sequence[int], size: EpisodeSize, session: int, steps: int, block_steps: int) -> None:
        self.size, self.session, self.steps, self.block_steps = size, session, steps, block_steps
        self.seed = self.block = 0
        self._count = len(labels)
        self._images_of: dict[int, list[int]] = {}
        for index, label in enumerate(labels):
            self._images_of.setdefault(label, []).append(index)

    @property
    def blocks(self) -> int:
        """Number of blocks in the session."""
        return -(-self.steps // self.block_steps)

    @property
    def numbers(self) -> range:
        """Steps of the current block."""
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

        def shuffle(values: Sequence[int]) -> list[int]:
            return [values[number] for number in torch.randperm(len(values), generator=generator).tolist()]

        support: list[int] = []
        others: list[int] = []
        for label in shuffle(list(self._images_of))[: self.size.ways]:
            images, shots = shuffle(self._images_of[label]), self.size.shots
            support += images[:shots]
            others += images[shots : shots + self.size.others]
        return Episode(tuple(support), (*shuffle(range(self._count))[: self.size.batch], *others))
