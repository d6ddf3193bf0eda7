"""An image's augmentation depends only on seed, image and epoch."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from cocoamix.compat import ensure_torchvision
from cocoamix.features.images import ImageItems, collate, image_name
from cocoamix.seeding import derive_seed, seeded
from tests.conftest import write_dataset

ensure_torchvision()
from torchvision import transforms  # noqa: E402

SEED_OF_RIVER = 1320200330


def noisy(image: Any) -> torch.Tensor:
    """Draws from all three generators, as augmentations do."""
    tensor = transforms.RandomResizedCrop(16)(transforms.ToTensor()(image))
    return tensor + random.random() + float(np.random.rand())


@pytest.fixture
def items(tmp_path: Path) -> ImageItems:
    paths = sorted(write_dataset(tmp_path, train=1, val=1, test=1).rglob("*.png"))
    data = [SimpleNamespace(impath=str(path), label=number, domain=0) for number, path in enumerate(paths)]
    return ImageItems(None, data, transform=noisy, is_train=True)


def load_all(items: ImageItems, workers: int = 0, order: list[int] | None = None) -> dict[int, torch.Tensor]:
    loader = DataLoader(items, batch_size=4, num_workers=workers, collate_fn=collate, sampler=order)
    return {int(i): img for batch in loader for i, img in zip(batch["index"], batch["img"], strict=True)}


def same(one: dict[int, torch.Tensor], other: dict[int, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_augmentation_is_independent_of_workers_order_and_earlier_draws(items: ImageItems) -> None:
    wanted = load_all(items)
    torch.manual_seed(7)
    assert same(wanted, load_all(items, workers=2))
    assert same(wanted, load_all(items, order=list(reversed(range(len(items))))))


def test_augmentation_depends_on_seed_and_epoch(items: ImageItems) -> None:
    wanted = load_all(items)
    items.view = 1
    other = load_all(items)
    assert not any(torch.equal(wanted[key], other[key]) for key in wanted)
    items.view, items.seed = 0, 5
    assert not same(wanted, load_all(items))
    items.is_random, items.seed = False, 0
    fixed = load_all(items)
    items.view = 3
    assert same(fixed, load_all(items))  # a test image has one view


def test_generator_states_are_restored() -> None:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    wanted = random.random(), np.random.rand(), torch.rand(1)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    with seeded(99):
        random.random(), np.random.rand(), torch.rand(1)
    assert (random.random(), np.random.rand(), torch.rand(1)) == wanted


def test_names_do_not_depend_on_the_root() -> None:
    assert image_name("/data/one/eurosat/2750/River/River_1.jpg") == image_name("elsewhere/River/River_1.jpg")
    assert derive_seed(1, "a") != derive_seed("1a")  # parts cannot be confused
    assert derive_seed(1, "River/River_1.jpg", 0) == SEED_OF_RIVER  # on every machine, in every version
