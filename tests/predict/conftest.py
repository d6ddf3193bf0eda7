"""Finished runs of every kind to use, on the generated dataset."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TINY, Run, command, own_stdout, write_dataset
from tests.faults.runs import KINDS

Trained = Callable[..., Run]


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train each kind of run once for all tests, with the predictions of its evaluation kept."""
    place = tmp_path_factory.mktemp("runs")
    data, config = write_dataset(place / "data"), place / "tiny.yaml"
    config.write_text(TINY)
    done: dict[tuple[str, ...], Path] = {}

    def train(kind: str, *extra: str) -> Path:
        key = (kind, *extra)
        if key not in done:
            from cocoamix.train import main

            if kind.startswith("zero-shot"):
                cut = ("FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2")
                trainer, settings = ("ZeroshotCLIPFSCIL", cut) if "sessions" in kind else ("ZeroshotCLIP", ())
                settings = ("--eval-only", *settings)
            else:
                trainer, settings = KINDS[kind]
            folder = place / str(len(done))
            keep = ("TEST.SAVE_PREDICTIONS", "True")
            with own_stdout():
                assert main(command(data, folder, config, *settings, *keep, *extra, trainer=trainer)) == 0
            done[key] = folder
        return done[key]

    return train


@pytest.fixture
def trained(trained_once: Callable[..., Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Trained:
    """Return a kind of run in a folder of the test's own."""

    def train(kind: str, *extra: str, name: str = "trained") -> Run:
        source = trained_once(kind, *extra)
        capfd.readouterr()
        return Run(0, "", Path(shutil.copytree(source, tmp_path / name)))

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
