"""The seed of all random faults, and a table of what was tried."""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conftest import TINY, write_dataset

from .runs import Place


@dataclass
class Tally:
    """How often each fault was caused by the tests of this process, and how long that took."""

    faults: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)

    def count(self, fault: str, times: int = 1) -> None:
        """Count a fault that was handled correctly."""
        self.faults[fault] += times


_TALLY = Tally()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fault-seed", type=int, default=0, help="seed of the moments at which faults are caused")


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    before, start = Counter(_TALLY.faults), time.monotonic()
    yield _TALLY
    new = [fault for fault in _TALLY.faults if _TALLY.faults[fault] > before[fault]]
    for fault in new:
        _TALLY.seconds[fault] += (time.monotonic() - start) / len(new)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random generator of a test: the same for the same seed and test."""
    return random.Random(request.config.getoption("--fault-seed") + zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A folder with a synthetic dataset and a tiny configuration."""
    folder = tmp_path_factory.mktemp("faults")
    write_dataset(folder / "data")
    config = folder / "tiny.yaml"
    config.write_text(TINY)
    return Place(folder, folder / "data", config)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _TALLY.faults:
        terminalreporter.write_sep("-", "faults caused, each followed by a correct result")
        for fault in sorted(_TALLY.faults):
            terminalreporter.write_line(f"{fault:44} {_TALLY.faults[fault]:6} {_TALLY.seconds[fault]:8.0f} s")
