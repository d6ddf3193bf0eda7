"""The same items in the same order as CoOp's own loaders, by hashes that `benchmarks/parity_data.py` recorded."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHARED, needs
from tests.datasets import layouts
from tests.datasets.test_base import config

COOP: dict[str, str] = json.loads((Path(__file__).parent / "coop_hashes.json").read_text())


def build(name: str, root: Path, seed: int, shots: int, subset: str) -> Any:
    """Build one of our datasets by its registry name."""
    importlib.import_module("cocoamix.datasets")
    from dassl.data.datasets import DATASET_REGISTRY

    settings = {"num_shots": shots, "subsample_classes": subset, "fewer_shots": True}
    return DATASET_REGISTRY.get(name)(config(root, seed=seed, **settings))


def compare(cases: Iterable[tuple[str, str]], count: int) -> None:
    ours = dict(cases)
    assert len(ours) == count
    assert ours == {key: COOP[key] for key in ours}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory if possible, deleted after the test: up to 27,000 files are created in it."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as path:
        yield Path(path)


# The others have more images, each of which needs a file.
SMALLEST = "DescribableTextures"


@needs("data/splits")
@pytest.mark.parametrize(
    "name",
    [SMALLEST, *(pytest.param(name, marks=pytest.mark.slow) for name in layouts.PUBLISHED if name != SMALLEST)],
)
def test_items_of_published_splits_match_coop(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds 1, 2, 3 by 1, 4 and 16 shots, and no draw, each for all, base and new."""
    from cocoamix.datasets.common import base

    monkeypatch.setattr(base, "read_split", lru_cache(base.read_split))  # thirty times the same file
    compare(layouts.published_cases(name, build, SHARED / "data" / "splits", folder), 30)


@needs("data/eurosat")
def test_items_of_real_images_match_coop(folder: Path) -> None:
    source = SHARED / "data" / "eurosat"
    (folder / "eurosat").mkdir()
    (folder / "eurosat" / "2750").symlink_to(source.resolve() / "2750", target_is_directory=True)
    shutil.copyfile(source / "split_zhou_EuroSAT.json", folder / "eurosat" / "split_zhou_EuroSAT.json")
    cases = [(1, 1, "all"), (2, 4, "base"), (3, 16, "new"), (3, 16, "all")]
    found = {
        f"EuroSAT/images/shots_{shots}/seed{seed}/{subset}": layouts.digest(
            build("EuroSAT", folder, seed=seed, shots=shots, subset=subset), folder
        )
        for seed, shots, subset in cases
    }
    compare(found.items(), 4)


@pytest.mark.parametrize("name", layouts.OWN_SPLIT)
def test_generated_splits_match_coop(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a split file: the split, the draw after it, the bytes of the file, and the next start."""
    if not layouts.HAS_SCIPY:
        stub: Any = types.ModuleType("scipy.io")
        stub.loadmat = layouts.matlab_arrays
        monkeypatch.setitem(sys.modules, "scipy", types.ModuleType("scipy"))
        monkeypatch.setitem(sys.modules, "scipy.io", stub)
    compare(layouts.own_split_cases(name, build, folder), 10)


@pytest.mark.parametrize("name", ["FGVCAircraft", "ImageNet", *layouts.VARIANTS])
def test_datasets_without_split_files_match_coop(name: str, folder: Path) -> None:
    compare(layouts.listed_cases(name, build, folder), 4 if name in layouts.VARIANTS else 12)


def test_every_coop_dataset_is_compared() -> None:
    assert {key.split("/")[0] for key in COOP} == set(layouts.FOLDERS)
    assert len(layouts.FOLDERS) == 15
