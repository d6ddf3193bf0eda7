"""The source of a run's image features: the store, or the encoder in every step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from cocoamix.clip.interface import AnyCLIP
from cocoamix.io.paths import expand_home
from cocoamix.io.progress import progress
from cocoamix.io.screen import detail

from .extract import FrozenFeatures, Source
from .images import UNREADABLE, ImageItems
from .store import default_folder
from .unreadable import Unreadable


@dataclass(frozen=True)
class StoreSettings:
    """Settings of the store, from CACHE.* and the data settings.

    Attributes:
        mode: CACHE.MODE: `off`, `test` or `all`.
        folder: CACHE.DIR; empty for the default folder.
        dataset: Name of the dataset's part of the store.
        workers: Workers of the loaders.
        transform: Settings of the transform, because the `repr` of some augmentations does not show theirs.
    """

    mode: str
    folder: str
    dataset: str
    workers: int
    transform: str


class ImageSource:
    """Provides a trainer with image features.

    Args:
        clip: The frozen model.
        settings: Settings of the store.
        unreadable: Collects unreadable images.
        raw: Use features that are not normalised.
    """

    def __init__(self, clip: AnyCLIP, settings: StoreSettings, unreadable: Unreadable, raw: bool = False) -> None:
        self.clip, self.settings, self.unreadable, self.raw = clip, settings, unreadable, raw
        self.files: list[str] = []  # the images of the last batch
        self.features: FrozenFeatures | None = None
        if settings.mode != "off":
            folder = expand_home(settings.folder) if settings.folder else default_folder()
            self.features = FrozenFeatures(clip.each(), folder, raw)
            detail(f"Image features are kept in {folder} (CACHE.MODE {settings.mode})")

    def encode(self, inputs: Tensor) -> Tensor:
        """Return the (B, embedding) features of (B, 3, H, W) images; a batch of features is returned unchanged."""
        if inputs.dim() == 2:
            return inputs
        return self.clip.encode_image_raw(inputs) if self.raw else self.clip.encode_image(inputs)

    def read(self, batch: Mapping[str, Any], device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels of a batch on a device, and record its unreadable images."""
        self.unreadable.note(dict(batch.get(UNREADABLE, [])))
        self.files = list(batch.get("impath", []))
        if "img" not in batch:
            return torch.empty(0), batch["label"]
        return batch["img"].to(device, non_blocking=True), batch["label"].to(device, non_blocking=True)

    def set_view(self, loader: DataLoader[Any], view: int, last: int, part: str, batch_size: int = 0) -> None:
        """Set the view of a training loader, and give it stored features if the store is used.

        Args:
            loader: The loader.
            view: Index of the view.
            last: Index of the last view that training uses.
            part: Part of the store.
            batch_size: Images to encode at once; 0 for the loader's batch size.
        """
        items = cast(ImageItems, loader.dataset)
        is_current = items.features is not None and view == items.view
        items.view = view
        if self.features is None or self.settings.mode != "all" or is_current:
            return
        self.features.load(self._source(loader, part, batch_size), view, last, self.unreadable.note)
        loader.num_workers = 0  # workers have nothing left to do

    def batches(
        self, loader: DataLoader[Any], part: str, device: torch.device, batch_size: int = 0
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield inputs, labels and item indices of the readable images of a loader, in its order."""
        if self.features is None:
            for batch in progress(loader, len(loader), "evaluating"):
                inputs, labels = self.read(batch, device)
                if len(labels):
                    yield inputs, labels, batch["index"]
            return
        items = cast(ImageItems, loader.dataset)
        if items.features is None:
            self.features.load(self._source(loader, part, batch_size), items.view, items.view, self.unreadable.note)
        good = [index for index, item in enumerate(items.items) if item.impath not in items.unreadable]
        labels = torch.tensor([items.items[index].label for index in good])
        features = cast(Tensor, items.features)[good]
        parts = (side.split(loader.batch_size or 1) for side in (features, labels, torch.tensor(good)))
        for batch_features, batch_labels, indices in zip(*parts, strict=True):
            yield batch_features.to(device), batch_labels.to(device), indices

    def _source(self, loader: DataLoader[Any], part: str, batch_size: int) -> Source:
        # A batch is never larger than the split, as in a training step.
        items = cast(ImageItems, loader.dataset)
        size = batch_size or min(int(loader.batch_size or 1), len(items))
        settings = self.settings.transform if items.is_random else ""
        return Source(items, f"{self.settings.dataset}/{part}", size, self.settings.workers, settings)
