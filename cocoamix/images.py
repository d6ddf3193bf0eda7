"""Reading and augmenting pictures, the same way in every process and on every start.

A picture's augmentation depends on the seed, the picture and the epoch alone: not on the number of
loader workers, not on the order of the batches, not on what ran before.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset, default_collate

UNREADABLE = "unreadable"  # key of a batch: files left out of it, with the reason


def derive_seed(*parts: object) -> int:
    """Return a 32-bit seed that depends on every part, and is the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


def image_name(impath: str) -> str:
    """Return what identifies a picture whatever the data root is: its folder and file name."""
    return "/".join(PurePath(impath).parts[-2:])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed Python's, numpy's and torch's generators for a moment and put them back."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)  # not torch.manual_seed, which would reach for CUDA in a worker
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def read_image(impath: str) -> Image.Image:
    """Read a picture as RGB."""
    with Image.open(impath) as image:
        return image.convert("RGB")


class ImageItems(Dataset[dict[str, Any]]):
    """The items of a split as tensors, in the form that Dassl's data manager wants of a `dataset_wrapper`."""

    def __init__(
        self,
        cfg: Any,
        data_source: Sequence[Any],
        transform: Callable[[Image.Image], torch.Tensor] | None = None,
        is_train: bool = False,
    ) -> None:
        self.items = data_source
        self.transform = transform
        self.is_train = is_train
        self.seed = 0
        self.epoch = 0  # the view of a training picture

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = self.items[index]
        try:
            # An item may draw its picture instead of having a file.
            image = item.draw() if hasattr(item, "draw") else read_image(item.impath)
        except (OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            return {UNREADABLE: (item.impath, str(error))}
        output = {"label": item.label, "domain": item.domain, "impath": item.impath, "index": index}
        if self.transform is None:
            output["img"] = image
            return output
        view = self.epoch if self.is_train else 0
        with seeded(derive_seed(self.seed, image_name(item.impath), view)):
            output["img"] = self.transform(image)
        return output


def collate(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Make a batch of the readable items and list the others under UNREADABLE."""
    readable = [item for item in items if UNREADABLE not in item]
    batch: dict[str, Any] = default_collate(readable) if readable else {"label": torch.empty(0, dtype=torch.long)}
    batch[UNREADABLE] = [item[UNREADABLE] for item in items if UNREADABLE in item]
    return batch
