"""The fuzzer: a short run with a fixed seed, the full run (marked slow), and a check that it can fail."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cocoamix.errors import UserError

from . import fuzz
from .fuzz import Target


def test_short_fuzz_run_finds_no_fault() -> None:
    with fuzz.all_targets() as targets:
        counts, faults = fuzz.fuzz(targets, seed=7, inputs=500)
    assert not faults, "\n".join(faults)
    assert all(counter.total() for counter in counts.values())
    refused = sum(counter["refused"] for counter in counts.values())
    assert refused > 150, "too few inputs are damaged"


@pytest.mark.slow
def test_full_fuzz_run_finds_no_fault() -> None:
    with fuzz.all_targets() as targets:
        counts, faults = fuzz.fuzz(targets, seed=0, inputs=20_000)
    print(fuzz.table(counts))
    assert not faults, "\n".join(faults)


class FakeTarget(Target):
    """A target whose reader calls a function of the test."""

    name = "fake"
    does: Any = None

    def samples(self) -> list[str]:
        return ["text"]

    def read(self, path: Path) -> object:
        return type(self).does()


def _raise(error: BaseException) -> Any:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("does", "kind", "words"),
    [
        (lambda: None, "accepted", ""),
        (_raise(UserError("It is wrong.")), "refused", ""),
        (_raise(KeyError("x")), "fault", "KeyError"),
        (_raise(UserError("word " * 150)), "fault", "letters"),
        (lambda: time.sleep(9), "fault", "no end"),
    ],
)
def test_faults_are_classified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: Any, kind: str, words: str
) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 0.2)
    monkeypatch.setattr(FakeTarget, "does", staticmethod(does))
    found, message = fuzz.run_input(FakeTarget(tmp_path), 0, 0)
    assert found == kind
    assert words in message


def test_inputs_are_reproducible(tmp_path: Path) -> None:
    target = FakeTarget(tmp_path)
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        target.place(Random("0:fake:3"), file, "some text of a file 1 2 3\n" * 20)
    assert files[0].read_bytes() == files[1].read_bytes()
