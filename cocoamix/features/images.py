"""Reading and augmentation of images, reproducible in every process and run.

An augmentation depends only on the seed, the image and the view (usually the epoch), not on the number of loader
workers, the order of the batches or what ran before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import torch
from PIL import Image
from torch.utils.data import Dataset, default_collate

from cocoamix.compat import ensure_torchvision
from cocoamix.seeding import derive_seed, seeded

from .reading import image_identity, read_identified
from .workers import exit_if_batch_is_lost

ensure_torchvision()  # a new process that loads images unpickles this module's class before its transform

UNREADABLE = "unreadable"  # key of a batch: files that it leaves out, with the reason
IDENTITY = "identity"  # key of an image: its identity when it was read


def image_name(impath: str) -> str:
    """Return the last folder and the file name of an image, which identify it under any data root."""
    return "/".join(PurePath(impath).parts[-2:])


def is_upright(item: object) -> bool:
    """Return whether an item's image is rotated by its EXIF orientation. CoOp rotates no images."""
    return bool(getattr(item, "upright", False))


class ImageItems(Dataset[dict[str, Any]]):
    """The items of a split as tensors, a `dataset_wrapper` of Dassl's data manager.

    If `features` is set (see `cocoamix.features.extract`), items hold a feature instead of an image.
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
        self.view = 0  # index of the augmentation of training images
        self.features: torch.Tensor | None = None  # (N, embedding) of the current view
        self.unreadable: dict[str, str] = {}  # images without features, with the reason
        self._identities: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        item = self.items[index]
        output = {"label": item.label, "domain": item.domain, "impath": item.impath, "index": index}
        if self.features is None:
            output |= self.load_image(index, self.view)
            output.pop(IDENTITY, None)
            return output
        if item.impath in self.unreadable:
            return {UNREADABLE: (item.impath, self.unreadable[item.impath])}
        return {**output, "img": self.features[index]}

    def load_image(self, index: int, view: int) -> dict[str, Any]:
        """Return the tensor of an image in a view, or why it cannot be read."""
        item = self.items[index]
        try:
            image, identity = self._read(item)
        except (OSError, ValueError) as error:
            return {UNREADABLE: (item.impath, str(error))}
        if self.transform is None:
            return {"img": image, IDENTITY: identity}
        with seeded(self._seed(index, view)):
            return {"img": self.transform(image), IDENTITY: identity}

    def _read(self, item: Any) -> tuple[Image.Image, str]:
        # An item may draw its image instead of reading a file.
        image, identity = (item.draw(), "") if hasattr(item, "draw") else read_identified(item.impath, is_upright(item))
        return image, str(item.identity) if hasattr(item, "identity") else identity

    def _seed(self, index: int, view: int) -> int:
        return derive_seed(self.seed, image_name(self.items[index].impath), view if self.is_random else 0)

    def augmentation(self, index: int, view: int) -> str:
        """Return what identifies the augmentation of an image in a view, for the key of its feature."""
        return str(self._seed(index, view)) if self.is_random else "none"

    def identity(self, index: int) -> str:
        """Return a string that changes with the image, such as the path, size and modification time of a file."""
        if index not in self._identities:
            item = self.items[index]
            self._identities[index] = (
                str(item.identity) if hasattr(item, "identity") else image_identity(item.impath, is_upright(item))
            )
        return self._identities[index]


def collate(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Collate the readable items into a batch and list the others under UNREADABLE."""
    exit_if_batch_is_lost()
    readable = [item for item in items if UNREADABLE not in item]
    batch: dict[str, Any] = default_collate(readable) if readable else {"label": torch.empty(0, dtype=torch.long)}
    batch[UNREADABLE] = [item[UNREADABLE] for item in items if UNREADABLE in item]
    return batch
