"""Random numbers that depend only on their purpose, not on what ran before."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def derive_seed(*parts: object) -> int:
    """Return a 32-bit seed that depends on all parts and is the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()[:4], "little")


def set_random_seed(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices)."""
    for generator in (random.seed, np.random.seed, torch.manual_seed, torch.cuda.manual_seed_all):
        generator(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of Python, numpy and torch, and restore their states at the end."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which would initialise CUDA in a worker
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
