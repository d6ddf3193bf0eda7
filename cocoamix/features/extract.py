"""From pictures to frozen features: what the store has is read, the rest is encoded and stored.

Pictures are encoded in batches of one fixed size, the last one filled up, and that is the batch size of the loader
that they come from: the encoder then does the same arithmetic for a picture as it would do in a training step. Features
that a run of another batch size has stored may differ in the last bits.
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

Rows = dict[bytes, Tensor]  # features by the keys of their pictures
_SECONDS_BETWEEN_FILES = 60.0  # what a kill can cost
_PICTURES_AT_ONCE = 2048  # small views are encoded several at a time


@dataclass
class Source:
    """A split whose features are wanted.

    bucket: its part of the store, such as EuroSAT/test; the views of a training split get parts of their own.
    batch_size, workers: of its loader.
    """

    items: ImageItems
    bucket: str
    batch_size: int
    workers: int
    settings: str = ""  # what the transform was made from, for augmentations that do not tell it themselves

    def keys(self, view: int) -> list[bytes]:
        """Return the keys of all pictures in a view."""
        items = self.items
        return [make_key(items.identity(index), items.augmentation(index, view)) for index in range(len(items))]

    def part(self, view: int) -> str:
        """Return the part of the store that a view is in."""
        return f"{self.bucket}/view{view}" if self.items.is_random else self.bucket


class FrozenFeatures:
    """The features of a run's pictures, by one or several models, in stores below `folder`.

    raw: as long as the towers give them, instead of unit vectors. Those have stores of their own.
    """

    def __init__(self, clips: Sequence[FrozenCLIP], folder: Path, raw: bool = False) -> None:
        self.clips, self.folder, self.raw = list(clips), folder, raw
        self._stores: dict[str, list[FeatureStore]] = {}
        self._ahead: dict[str, list[Rows]] = {}  # views that were encoded with an earlier one

    def load(
        self, source: Source, view: int, last_view: int, note: Callable[[Mapping[str, str]], None] | None = None
    ) -> None:
        """Give `source.items` the features of a view.

        Where a view is small and has to be encoded, so are some of those that follow it, up to `last_view`.
        note: is told of pictures that cannot be read, with the reason, as soon as they are met; it may raise.
        """
        items = source.items
        task = _Task(source, self._stores_of(source), note or (lambda found: None))
        rows = self._ahead.pop(source.part(view), None) or task.read(view)
        task.add(view, rows)
        if task.missing:
            ahead = max(1, _PICTURES_AT_ONCE // max(1, len(items)))
            for other in range(view + 1, min(view + ahead, last_view + 1)):
                task.add(other, self._ahead.get(source.part(other)) or task.read(other))
                self._ahead[source.part(other)] = task.rows[other]
            task.encode(self.clips, self.raw)
        keys = task.keys[view]
        width = sum(clip.sizes.embedding for clip in self.clips)
        present = [index for index, key in enumerate(keys) if all(key in member for member in rows)]
        features = torch.full((len(keys), width), torch.nan)  # a picture that cannot be read has none
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
    """Return what a feature depends on beside its picture."""
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
    name = getattr(transform, "__qualname__", kind.__qualname__)  # a function has a name of its own
    if kind.__repr__ is object.__repr__ or name != kind.__qualname__:
        text = f"{kind.__module__}.{name} {sorted(getattr(transform, '__dict__', {}).items())}"
    else:
        text = repr(transform)
    return re.sub(r" at 0x[0-9a-f]+", "", text)  # an address differs from start to start


class _Task:
    """Pictures of one split that are to be encoded, in one view or several."""

    def __init__(
        self, source: Source, stores: Sequence[FeatureStore], note: Callable[[Mapping[str, str]], None]
    ) -> None:
        self.source, self.stores, self.note = source, stores, note
        self.keys: dict[int, list[bytes]] = {}
        self.rows: dict[int, list[Rows]] = {}  # by view, of every model
        self.missing: list[tuple[int, int]] = []  # picture, view

    def read(self, view: int) -> list[Rows]:
        """Return what is stored of a view."""
        keys = self._keys(view)
        return [store.read(self.source.part(view), keys) for store in self.stores]

    def _keys(self, view: int) -> list[bytes]:
        if view not in self.keys:
            self.keys[view] = self.source.keys(view)
        return self.keys[view]

    def add(self, view: int, rows: list[Rows]) -> None:
        """Take up a view of which `rows` are there."""
        self.rows[view] = rows
        items = self.source.items
        self.missing += [
            (index, view)
            for index, key in enumerate(self._keys(view))
            if not all(key in member for member in rows) and items.items[index].impath not in items.unreadable
        ]

    def encode(self, clips: Sequence[FrozenCLIP], raw: bool) -> None:
        """Encode what is missing into `rows`, and store it view by view."""
        size = self.source.batch_size
        loader = DataLoader(
            _Pictures(self.source.items, self.missing),
            batch_size=size,
            num_workers=min(self.source.workers, len(self.missing) // (2 * size)),  # a worker must be worth its start
            collate_fn=collate,
            pin_memory=clips[0].device.type == "cuda",
            generator=torch.Generator(),  # so that the global one, which orders the batches, is left alone
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
                    self._tell_changed([one for one, is_same in zip(chosen, unchanged, strict=True) if not is_same])
                if time.monotonic() - written > _SECONDS_BETWEEN_FILES:
                    waiting, written = self._store(waiting), time.monotonic()
        finally:  # what was encoded before an interruption need not be encoded again
            self._store(waiting)

    def _refuse_not_finite(self, clip: FrozenCLIP, features: Tensor, chosen: Sequence[tuple[int, int]]) -> None:
        items = self.source.items.items
        fault = not_finite.in_images(clip, features, [items[index].impath for index, _ in chosen])
        if fault is not None:
            raise fault

    def _tell_changed(self, chosen: Sequence[tuple[int, int]]) -> None:
        if chosen:
            first = printable(self.source.items.items[chosen[0][0]].impath)
            print(
                f"{len(chosen)} images changed after this run had listed them, the first is {first}: "
                "they are used as they are now, and their features are not stored"
            )

    def _store(self, waiting: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Write the rows of pictures and views that wait for it; none is left."""
        for view in sorted({view for _, view in waiting}):
            keys = [self.keys[view][index] for index, other in waiting if other == view]
            for store, rows in zip(self.stores, self.rows[view], strict=True):
                store.write(self.source.part(view), keys, torch.stack([rows[key] for key in keys]))
        return []


class _Pictures(Dataset[dict[str, Any]]):
    """Chosen pictures in chosen views."""

    def __init__(self, items: ImageItems, chosen: Sequence[tuple[int, int]]) -> None:
        self.items, self.chosen = items, chosen

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, number: int) -> dict[str, Any]:
        index, view = self.chosen[number]
        found = self.items.picture(index, view)
        if UNREADABLE in found:
            return found
        # A feature must not be stored under what the image was before.
        return {"img": found["img"], "number": number, "unchanged": found[IDENTITY] == self.items.identity(index)}


def encode_batch(clip: FrozenCLIP, pictures: Tensor, size: int, raw: bool = False) -> Tensor:
    """Encode (B, 3, H, W) pictures as (B, embedding) on the CPU, in a batch of exactly `size`."""
    count = len(pictures)
    if count < size:
        pictures = torch.cat([pictures, pictures[-1:].expand(size - count, -1, -1, -1)])
    encode = clip.encode_image_raw if raw else clip.encode_image
    return encode(pictures)[:count].cpu()
