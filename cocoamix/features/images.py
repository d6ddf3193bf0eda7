"""Reading and augmenting pictures, the same way in every process and on every start.

A picture's augmentation depends on the seed, the picture and the view (the epoch, as a rule) alone: not on the number
of loader workers, not on the order of the batches, not on what ran before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset, default_collate

from cocoamix.seeding import derive_seed, seeded

from .workers import end_if_unheard

UNREADABLE = "unreadable"  # key of a batch: files left out of it, with the reason


def image_name(impath: str) -> str:
    """Return what identifies a picture whatever the data root is: its folder and file name."""
    return "/".join(PurePath(impath).parts[-2:])


def read_image(impath: str) -> Image.Image:
    """Read a picture as RGB."""
    with Image.open(impath) as image:
        return image.convert("RGB")


class ImageItems(Dataset[dict[str, Any]]):
    """The items of a split as tensors, in the form that Dassl's data manager wants of a `dataset_wrapper`.

    Once `features` is there (see `cocoamix.features.extract`), items carry a feature instead of a picture.
    """

    def __init__(
        self,
        cfg: Any,
        data_source: Sequence[Any],
        transform: Callable[[Image.Image], torch.Tensor] | None = None,
        is_train: bool = False,
    ) -> None:
        self.items = data_source
        self.transform = transform
        self.is_random = is_train  # whether the transform augments
        self.seed = 0
        self.view = 0  # of a training picture: which of its augmentations it shows
        self.features: torch.Tensor | None = None  # (N, embedding) of the present view
        self.unreadable: dict[str, str] = {}  # pictures that have none, with the reason
        self._identities: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = self.items[index]
        output = {"label": item.label, "domain": item.domain, "impath": item.impath, "index": index}
        if self.features is None:
            return {**output, **self.picture(index, self.view)}
        if item.impath in self.unreadable:
            return {UNREADABLE: (item.impath, self.unreadable[item.impath])}
        return {**output, "img": self.features[index]}

    def picture(self, index: int, view: int) -> dict[str, Any]:
        """Return the tensor of a picture in a view, or why it cannot be read."""
        item = self.items[index]
        try:
            # An item may draw its picture instead of having a file.
            image = item.draw() if hasattr(item, "draw") else read_image(item.impath)
        except (OSError, UnidentifiedImageError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            return {UNREADABLE: (item.impath, str(error))}
        if self.transform is None:
            return {"img": image}
        with seeded(self._seed(index, view)):
            return {"img": self.transform(image)}

    def _seed(self, index: int, view: int) -> int:
        return derive_seed(self.seed, image_name(self.items[index].impath), view if self.is_random else 0)

    def augmentation(self, index: int, view: int) -> str:
        """Return what the transform draws from, beside the picture."""
        return str(self._seed(index, view)) if self.is_random else "none"

    def identity(self, index: int) -> str:
        """Return what changes when the picture does: path, size and time of a file."""
        if index not in self._identities:
            item = self.items[index]
            self._identities[index] = str(item.identity) if hasattr(item, "identity") else file_identity(item.impath)
        return self._identities[index]


def file_identity(impath: str) -> str:
    """Return what changes when a file does: path, size and time."""
    path = os.path.abspath(impath)
    try:
        status = os.stat(path)
    except OSError:  # reading it will say what is wrong
        return path
    return f"{path}|{status.st_size}|{status.st_mtime_ns}"


def collate(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Make a batch of the readable items and list the others under UNREADABLE."""
    end_if_unheard()
    readable = [item for item in items if UNREADABLE not in item]
    batch: dict[str, Any] = default_collate(readable) if readable else {"label": torch.empty(0, dtype=torch.long)}
    batch[UNREADABLE] = [item[UNREADABLE] for item in items if UNREADABLE in item]
    return batch
