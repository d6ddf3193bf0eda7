"""Finished runs of every kind, on the generated dataset."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Run, Runner
from tests.faults.runs import KINDS

Trained = Callable[..., Run]


@pytest.fixture
def trained(shared_run: Runner) -> Trained:
    """Return a run of a kind, with its evaluation's predictions saved, in the test's own folder."""

    def train(kind: str, *extra: str, name: str = "trained") -> Run:
        if kind.startswith("zero-shot"):
            split = ("FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2")
            trainer, settings = ("ZeroshotCLIPFSCIL", split) if "sessions" in kind else ("ZeroshotCLIP", ())
            settings = ("--eval-only", *settings)
        else:
            trainer, settings = KINDS[kind]
        return shared_run(*settings, "TEST.SAVE_PREDICTIONS", "True", *extra, name=name, trainer=trainer)

    return train


@pytest.fixture
def test_table(data_root: Path, tmp_path: Path) -> Callable[..., Path]:
    """Write a table of the test images of some classes, or of all."""

    def write(classes: list[str] | None = None) -> Path:
        split = json.loads((data_root / "eurosat" / "split_zhou_EuroSAT.json").read_text())["test"]
        path = tmp_path / "test.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["path", "classname"])
            for image, _, name in split:
                if classes is None or name in classes:
                    writer.writerow([data_root / "eurosat" / "2750" / image, name])
        return path

    return write


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a table of predictions."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
