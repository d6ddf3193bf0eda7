"""In which order a loader visits its items."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from dassl.utils import check_availability
from torch.utils.data import RandomSampler, Sampler, SequentialSampler

from cocoamix.errors import UserError

AVAI_SAMPLERS = ["RandomSampler", "SequentialSampler", "RandomClassSampler", "RandomDomainSampler"]


class _DrawnAhead(Sampler[int]):
    """Draws each epoch before it is asked for: draws differ in length, and `len` must be right for the next one."""

    def __init__(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Draw the next epoch again, from the generator as it is now: an epoch that was seeded anew calls this."""
        self._next = self._draw()

    def _draw(self) -> list[int]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[int]:
        current, self._next = self._next, self._draw()
        return iter(current)

    def __len__(self) -> int:
        return len(self._next)


class RandomClassSampler(_DrawnAhead):
    """Batches of `n_ins` images of each of `batch_size // n_ins` classes."""

    def __init__(self, data_source: Sequence[Any], batch_size: int, n_ins: int) -> None:
        if batch_size < n_ins:
            raise UserError(f"N_INS is {n_ins}, more than the batch size {batch_size}. Make one of them fit.")
        self.n_ins = n_ins
        self.ncls_per_batch = batch_size // n_ins
        self.index_dic = _indices_by(data_source, "label")
        if len(self.index_dic) < self.ncls_per_batch:
            raise UserError(
                f"A batch of {batch_size} with {n_ins} images per class needs {self.ncls_per_batch} classes, "
                f"and there are {len(self.index_dic)}. Use a smaller batch or a larger N_INS."
            )
        super().__init__()

    def _draw(self) -> list[int]:
        left: dict[int, list[list[int]]] = {}
        for label, indices in self.index_dic.items():
            enough = len(indices) >= self.n_ins
            order = random.sample(indices, len(indices)) if enough else random.choices(indices, k=self.n_ins)
            whole = len(order) - self.n_ins + 1
            left[label] = [order[start : start + self.n_ins] for start in range(0, whole, self.n_ins)]
        drawn: list[int] = []
        while len(left) >= self.ncls_per_batch:
            for label in random.sample(list(left), self.ncls_per_batch):
                drawn += left[label].pop()
                if not left[label]:
                    del left[label]
        return drawn


class RandomDomainSampler(_DrawnAhead):
    """Batches with equally many images of each of `n_domain` domains (below 1: of all domains)."""

    def __init__(self, data_source: Sequence[Any], batch_size: int, n_domain: int | None) -> None:
        self.domain_dict = _indices_by(data_source, "domain")
        self.n_domain = n_domain if n_domain and n_domain > 0 else len(self.domain_dict)
        if self.n_domain > len(self.domain_dict) or batch_size % self.n_domain:
            raise UserError(
                f"A batch of {batch_size} cannot be shared by {self.n_domain} of {len(self.domain_dict)} domains. "
                "N_DOMAIN must divide the batch size and be no more than the number of domains."
            )
        self.n_img_per_domain = batch_size // self.n_domain
        if min(map(len, self.domain_dict.values())) < self.n_img_per_domain:
            raise UserError(f"Some domain has fewer than {self.n_img_per_domain} images. Use a smaller batch.")
        super().__init__()

    def _draw(self) -> list[int]:
        left = {domain: random.sample(indices, len(indices)) for domain, indices in self.domain_dict.items()}
        drawn: list[int] = []
        while min(map(len, left.values())) >= self.n_img_per_domain:
            for domain in random.sample(list(left), self.n_domain):
                drawn += left[domain][: self.n_img_per_domain]
                del left[domain][: self.n_img_per_domain]
        return drawn


def _indices_by(data_source: Sequence[Any], attribute: str) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for index, item in enumerate(data_source):
        groups[getattr(item, attribute)].append(index)
    return dict(groups)


def build_sampler(
    sampler_type: str,
    cfg: Any = None,
    data_source: Sequence[Any] | None = None,
    batch_size: int = 32,
    n_domain: int = 0,
    n_ins: int = 16,
) -> Sampler[int]:
    """Build the sampler named in the config."""
    check_availability(sampler_type, AVAI_SAMPLERS, "DATALOADER's SAMPLER")
    if not data_source:
        raise UserError("There are no items to sample from: the set is empty.")
    if sampler_type == "RandomSampler":
        return RandomSampler(data_source)
    if sampler_type == "SequentialSampler":
        return SequentialSampler(data_source)
    if sampler_type == "RandomClassSampler":
        return RandomClassSampler(data_source, batch_size, n_ins)
    return RandomDomainSampler(data_source, batch_size, n_domain)
