"""The synthetic datasets: without a data folder or from written files, the items and images are the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dassl.data.datasets import DATASET_REGISTRY

from cocoamix import shapes
from cocoamix.features.images import ImageItems
from tests.datasets.test_base import config


def build(name: str, root: Path | str = "", **dataset: Any) -> Any:
    import cocoamix.datasets  # noqa: F401  # registers them

    cfg = config(Path("."), **dataset)
    cfg.DATASET.ROOT = str(root)
    return DATASET_REGISTRY.get(name)(cfg)


def test_needs_no_folder_and_creates_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    base, new = (build("Shapes", num_shots=4, subsample_classes=half) for half in ("base", "new"))
    assert list(tmp_path.iterdir()) == []
    world = shapes.DATASETS["Shapes"]
    assert [*base.classnames, *new.classnames] == [c.name for c in world.classes]
    assert (len(base.train_x), len(base.test)) == (4 * world.base, world.base * world.test)
    assert {item.label for item in new.train_x} == set(range(world.new))
    # Relabelled from 0, an item still draws its own class.
    item = next(item for item in new.test if item.label == 0)
    assert item.classname == world.classes[world.base].name
    number = int(Path(item.impath).stem)
    assert item.draw().tobytes() == world.draw(world.base, number).tobytes()


def test_written_files_give_the_same_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(shapes.DATASETS["Shapes"], base=3, new=3, train=6, val=5, test=2)
    monkeypatch.setitem(shapes.DATASETS, "Shapes", small)
    shapes.write(tmp_path, ["Shapes"])
    drawn, read = build("Shapes", num_shots=4, seed=2), build("Shapes", tmp_path, num_shots=4, seed=2)
    for split in ("train_x", "val", "test"):
        ours, theirs = getattr(drawn, split), getattr(read, split)
        keys = [[(Path(i.impath).parts[-2:], i.label, i.classname) for i in items] for items in (ours, theirs)]
        assert keys[0] == keys[1]
    loaded = [ImageItems(None, d.train_x, transform=_pixels, is_train=True)[5]["img"] for d in (drawn, read)]
    assert torch.equal(loaded[0], loaded[1])


def _pixels(image: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
