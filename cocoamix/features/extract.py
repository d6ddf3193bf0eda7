"""Frozen features of images: stored ones are read, missing ones are encoded and stored.

Images are encoded in batches of exactly the loader's batch size, with the last batch padded, so that features are the
same as in a training step. Those stored by a run with another batch size may differ in the last bits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import PIL
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cocoamix.clip import not_finite
from cocoamix.clip.ensemble import join
from cocoamix.clip.model import FrozenCLIP
from cocoamix.errors import printable
from cocoamix.io.progress import progress

from .images import IDENTITY, UNREADABLE, ImageItems, collate
from .store import FeatureStore, make_key

Rows = dict[bytes, Tensor]  # features by the keys of their images
_SECONDS_BETWEEN_FILES = 60.0  # a killed run loses at most this much work
_IMAGES_AT_ONCE = 2048  # several small views are encoded together up to this number of images


@dataclass
class Source:
    """A split to load features for.

    Attributes:
        items: Its images.
        bucket: Its part of the store, such as EuroSAT/test. Each view of a training split has its own part.
        batch_size: Batch size of its loader.
        workers: Workers of its loader.
        settings: Settings of the transform, because the `repr` of some augmentations does not show theirs.
    """

    items: ImageItems
    bucket: str
    batch_size: int
    workers: int
    settings: str = ""

    def keys(self, view: int) -> list[bytes]:
        """Return the keys of all images in a view."""
        items = self.items
        return [make_key(items.identity(index), items.augmentation(index, view)) for index in range(len(items))]

    def part(self, view: int) -> str:
        """Return the part of the store that holds a view."""
        return f"{self.bucket}/view{view}" if self.items.is_random else self.bucket


class FrozenFeatures:
    """The features of a run's images from one or several models, in stores below `folder`.

    Args:
        clips: The models.
        folder: Folder of the stores.
        raw: Use features that are not normalised, which have separate stores.
    """

    def __init__(self, clips: Sequence[FrozenCLIP], folder: Path, raw: bool = False) -> None:
        self.clips, self.folder, self.raw = list(clips), folder, raw
        self._stores: dict[str, list[FeatureStore]] = {}
        self._ahead: dict[str, list[Rows]] = {}  # views that were encoded together with an earlier one

    def load(
        self, source: Source, view: int, last_view: int, note: Callable[[Mapping[str, str]], None] | None = None
    ) -> None:
        """Give `source.items` the features of a view.

        If a small view has to be encoded, some of the following views are encoded together with it.

        Args:
            source: The split.
            view: Index of the view.
            last_view: Index of the last view that may be encoded ahead.
            note: Called with unreadable images and the reasons as soon as they are found; it may raise.
        """
        items = source.items
        task = _Task(source, self._stores_of(source), note or (lambda found: None))
        rows = self._ahead.pop(source.part(view), None) or task.read(view)
        task.add(view, rows)
        if task.missing:
            ahead = max(1, _IMAGES_AT_ONCE // max(1, len(items)))
            for other in range(view + 1, min(view + ahead, last_view + 1)):
                task.add(other, self._ahead.get(source.part(other)) or task.read(other))
                self._ahead[source.part(other)] = task.rows[other]
            task.encode(self.clips, self.raw)
        keys = task.keys[view]
        width = sum(clip.sizes.embedding for clip in self.clips)
        present = [index for index, key in enumerate(keys) if all(key in member for member in rows)]
        features = torch.full((len(keys), width), torch.nan)  # an unreadable image has none
        if present:
            members = [torch.stack([member[keys[index]] for index in present]) for member in rows]
            features[present] = torch.cat(members, dim=-1) if self.raw else join(members)
        items.features = features

    def _stores_of(self, source: Source) -> list[FeatureStore]:
        transform = describe_transform(source.items.transform) + source.settings
        if transform not in self._stores:
            self._stores[transform] = [
                FeatureStore(self.folder, describe(clip, transform, self.raw)) for clip in self.clips
            ]
        return self._stores[transform]


def describe(clip: FrozenCLIP, transform: str, raw: bool = False) -> dict[str, str]:
    """Return what a feature depends on in addition to its image."""
    about = {
        "model": clip.name,
        "weights": clip.weights_hash,
        "runs": f"{clip.source}, {clip.activation}, {clip.precision} on {clip.device.type}",
        "transform": transform,
        "pictures": f"Pillow {PIL.__version__}, torchvision {metadata.version('torchvision')}",
    }
    return {**about, "features": "not normalised"} if raw else about


def describe_transform(transform: object) -> str:
    """Return the steps of a transform with their parameters."""
    steps = getattr(transform, "transforms", None)
    if isinstance(steps, (list, tuple)):
        return "\n".join(describe_transform(step) for step in steps)
    kind = type(transform)
    name = getattr(transform, "__qualname__", kind.__qualname__)  # of the function, if the transform is one
    if kind.__repr__ is object.__repr__ or name != kind.__qualname__:
        text = f"{kind.__module__}.{name} {sorted(getattr(transform, '__dict__', {}).items())}"
    else:
        text = repr(transform)
    return re.sub(r" at 0x[0-9a-f]+", "", text)  # addresses differ between runs


class _Task:
    """Images of one split to encode, in one or several views."""

    def __init__(
        self, source: Source, stores: Sequence[FeatureStore], note: Callable[[Mapping[str, str]], None]
    ) -> None:
        self.source, self.stores, self.note = source, stores, note
        self.keys: dict[int, list[bytes]] = {}
        self.rows: dict[int, list[Rows]] = {}  # by view, one per model
        self.missing: list[tuple[int, int]] = []  # image, view

    def read(self, view: int) -> list[Rows]:
        """Return the stored features of a view."""
        keys = self._keys(view)
        return [store.read(self.source.part(view), keys) for store in self.stores]

    def _keys(self, view: int) -> list[bytes]:
        if view not in self.keys:
            self.keys[view] = self.source.keys(view)
        return self.keys[view]

    def add(self, view: int, rows: list[Rows]) -> None:
        """Add a view whose stored features are `rows`."""
        self.rows[view] = rows
        items = self.source.items
        self.missing += [
            (index, view)
            for index, key in enumerate(self._keys(view))
            if not all(key in member for member in rows) and items.items[index].impath not in items.unreadable
        ]

    def encode(self, clips: Sequence[FrozenCLIP], raw: bool) -> None:
        """Encode the missing images into `rows`, and store them view by view."""
        size = self.source.batch_size
        loader = DataLoader(
            _Chosen(self.source.items, self.missing),
            batch_size=size,
            num_workers=min(
                self.source.workers, len(self.missing) // (2 * size)
            ),  # few images are not worth starting a worker
            collate_fn=collate,
            pin_memory=clips[0].device.type == "cuda",
            generator=torch.Generator(),  # does not change the global generator, which orders the batches
        )
        waiting: list[tuple[int, int]] = []
        written = time.monotonic()
        try:
            for batch in progress(loader, len(loader), f"encoding {self.source.bucket}"):
                if batch[UNREADABLE]:
                    self.source.items.unreadable.update(batch[UNREADABLE])
                    self.note(dict(batch[UNREADABLE]))
                if "img" in batch:
                    chosen = [self.missing[number] for number in batch["number"].tolist()]
                    for member, clip in enumerate(clips):
                        features = encode_batch(clip, batch["img"], size, raw)
                        self._refuse_not_finite(clip, features, chosen)
                        for (index, view), feature in zip(chosen, features, strict=True):
                            self.rows[view][member][self.keys[view][index]] = feature
                    unchanged = batch["unchanged"].tolist()
                    waiting += [one for one, is_same in zip(chosen, unchanged, strict=True) if is_same]
                    self._report_changed([one for one, is_same in zip(chosen, unchanged, strict=True) if not is_same])
                if time.monotonic() - written > _SECONDS_BETWEEN_FILES:
                    waiting, written = self._store(waiting), time.monotonic()
        finally:  # also store what was encoded before an interruption
            self._store(waiting)

    def _refuse_not_finite(self, clip: FrozenCLIP, features: Tensor, chosen: Sequence[tuple[int, int]]) -> None:
        items = self.source.items.items
        fault = not_finite.in_images(clip, features, [items[index].impath for index, _ in chosen])
        if fault is not None:
            raise fault

    def _report_changed(self, chosen: Sequence[tuple[int, int]]) -> None:
        if chosen:
            first = printable(self.source.items.items[chosen[0][0]].impath)
            print(
                f"{len(chosen)} images changed after this run listed them (the first is {first}): "
                "the new content is used, and their features are not stored"
            )

    def _store(self, waiting: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Write the features of the waiting images and views; return an empty list for the next ones."""
        for view in sorted({view for _, view in waiting}):
            keys = [self.keys[view][index] for index, other in waiting if other == view]
            for store, rows in zip(self.stores, self.rows[view], strict=True):
                store.write(self.source.part(view), keys, torch.stack([rows[key] for key in keys]))
        return []


class _Chosen(Dataset[dict[str, Any]]):
    """Chosen images in chosen views."""

    def __init__(self, items: ImageItems, chosen: Sequence[tuple[int, int]]) -> None:
        self.items, self.chosen = items, chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, number: int) -> dict[str, Any]:
        index, view = self.chosen[number]
        found = self.items.load_image(index, view)
        if UNREADABLE in found:
            return found
        # A feature must not be stored under the key of an earlier version of the image.
        return {"img": found["img"], "number": number, "unchanged": found[IDENTITY] == self.items.identity(index)}


def encode_batch(clip: FrozenCLIP, images: Tensor, size: int, raw: bool = False) -> Tensor:
    """Encode (B, 3, H, W) images as (B, embedding) features on the CPU, in a batch of exactly `size`."""
    count = len(images)
    if count < size:
        images = torch.cat([images, images[-1:].expand(size - count, -1, -1, -1)])
    encode = clip.encode_image_raw if raw else clip.encode_image
    return encode(images)[:count].cpu()
