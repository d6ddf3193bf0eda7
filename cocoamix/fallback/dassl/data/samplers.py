"""Samplers: the order in which a loader visits its items."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from dassl.utils import check_availability
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from cocoamix.errors import UserError

AVAI_SAMPLERS = ["RandomSampler", "SequentialSampler", "RandomClassSampler"]


class RandomClassSampler(Sampler[int]):
    """Samples batches of `batch_size // n_ins` classes with `n_ins` images each.

    Each epoch is drawn in advance, because epochs differ in length, and `len` must be that of the next one.
    """

    def __init__(self, data_source: Sequence[Any], batch_size: int, n_ins: int) -> None:
        if batch_size < n_ins:
            raise UserError(
                f"N_INS is {n_ins}, more than the batch size {batch_size}. Use a smaller N_INS or a larger batch."
            )
        self._per_class, self._classes = n_ins, batch_size // n_ins
        self._indices: dict[int, list[int]] = defaultdict(list)
        for index, item in enumerate(data_source):
            self._indices[item.label].append(index)
        if len(self._indices) < self._classes:
            raise UserError(
                f"A batch of {batch_size} with {n_ins} images per class needs {self._classes} classes, "
                f"and there are {len(self._indices)}. Use a smaller batch or a larger N_INS."
            )
        self.redraw()

    def redraw(self) -> None:
        """Draw the next epoch again, to be called after the generator is seeded."""
        self._next = self._draw()

    def __iter__(self) -> Iterator[int]:
        current, self._next = self._next, self._draw()
        return iter(current)

    def __len__(self) -> int:
        return len(self._next)

    def _draw(self) -> list[int]:
        left: dict[int, list[list[int]]] = {}
        for label, indices in self._indices.items():
            enough = len(indices) >= self._per_class
            order = random.sample(indices, len(indices)) if enough else random.choices(indices, k=self._per_class)
            whole = len(order) - self._per_class + 1
            left[label] = [order[start : start + self._per_class] for start in range(0, whole, self._per_class)]
        drawn: list[int] = []
        while len(left) >= self._classes:
            for label in random.sample(list(left), self._classes):
                drawn += left[label].pop()
                if not left[label]:
                    del left[label]
        return drawn


def build_sampler(
    sampler_type: str,
    cfg: Any = None,
    data_source: Sequence[Any] | None = None,
    batch_size: int = 32,
    n_domain: int = 0,
    n_ins: int = 16,
) -> Sampler[int]:
    """Build the named sampler. `cfg` and `n_domain` are part of Dassl's signature and not used."""
    check_availability(sampler_type, AVAI_SAMPLERS, "DATALOADER's SAMPLER")
    if not data_source:
        raise UserError("There are no items to sample from: the set is empty.")
    if sampler_type == "RandomClassSampler":
        return RandomClassSampler(data_source, batch_size, n_ins)
    return RandomSampler(data_source) if sampler_type == "RandomSampler" else SequentialSampler(data_source)
