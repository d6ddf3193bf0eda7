"""Where a trainer's image features come from: the store, or the encoder in every step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from cocoamix import images
from cocoamix.clip import FrozenCLIP
from cocoamix.clip.several import SeveralCLIPs
from cocoamix.encoding import FrozenFeatures, Source
from cocoamix.errors import UserError
from cocoamix.features import default_folder
from cocoamix.progress import progress
from cocoamix.registry import plain_name

from . import protocol
from .loaders import loader_over
from .saving import SavingTrainer


class FrozenTrainer(SavingTrainer):
    """A trainer whose image encoder never changes, so that its features can be stored."""

    clip: FrozenCLIP
    frozen_images = True  # False for a method that tunes the image side: it encodes pictures in every step
    raw_images = False  # True for a method that needs the length of image features, not unit vectors
    features: FrozenFeatures | None = None

    def open_store(self) -> None:
        """Use the store as CACHE.MODE says."""
        cache = self.cfg.CACHE
        if cache.MODE == "off" or not self.frozen_images:
            return
        folder = Path(cache.DIR).expanduser() if cache.DIR else default_folder()
        clips = self.clip.each() if isinstance(self.clip, SeveralCLIPs) else [self.clip]
        self.features = FrozenFeatures(clips, folder, self.raw_images)
        print(f"Image features are kept in {folder} (CACHE.MODE {cache.MODE})")

    # ------------------------------------------------------------------ training

    def longest(self) -> int:
        """Return how many epochs a training has at most; 0 for OPTIM.MAX_EPOCH. For subclasses."""
        return 0

    def view_of(self, epoch: int) -> int:
        """Return which augmentation of its pictures an epoch shows."""
        views = protocol.views(self.cfg, self.longest())
        return epoch % views if views else epoch

    def count_views(self) -> int:
        """Return how many augmentations of its pictures a training shows."""
        return min(protocol.views(self.cfg, self.longest()) or self.max_epoch, self.max_epoch)

    def declare_views(self) -> None:
        """Say where CACHE.VIEWS makes this another protocol than CoOp's."""
        views = protocol.views(self.cfg, self.longest())
        if views == 1:
            print("CACHE.VIEWS is 1, a CHANGE OF PROTOCOL: training pictures are one fixed centre crop, not augmented")
        elif views:
            print(f"CACHE.VIEWS is {views}, a CHANGE OF PROTOCOL: the epochs go through {views} augmentations in turn")

    def show_epoch(self) -> None:
        """Give the training loader the pictures, or the features, of the present epoch."""
        loader = self.train_loader_x
        items = cast(images.ImageItems, loader.dataset)
        view = self.view_of(self.epoch)
        shown = items.features is not None and view == items.view
        items.view = view
        if self.features is None or self.cfg.CACHE.MODE != "all" or shown:
            return
        last = self.count_views() - 1
        self.features.load(self._source(loader, self._training_split(items)), view, last, self.note_unreadable)
        loader.num_workers = 0  # nothing is left to do for them

    def _training_split(self, items: images.ImageItems) -> str:
        """Return the part of the store that training images are in: augmentations depend on the seed."""
        return f"train-seed{self.seed}" if items.is_random else "train"

    @torch.no_grad()
    def training_features(self, most_views: int) -> tuple[Tensor, Tensor]:
        """Return features and labels of the training images in the last views that a training shows of them."""
        whole = cast(images.ImageItems, self.train_loader_x.dataset)
        loader = loader_over(self.cfg, self.train_loader_x, whole.items, train=False, seed=self.seed)
        items = cast(images.ImageItems, loader.dataset)
        items.is_random = whole.is_random
        end = self.count_views()
        parts: list[tuple[Tensor, Tensor]] = []
        for view in range(max(0, end - most_views), end):
            items.view, items.features = view, None
            batches = self.batches_of(loader, self._training_split(items))
            parts += [(self.encode(inputs), labels) for inputs, labels in batches]
        features, labels = (torch.cat(side) for side in zip(*parts, strict=True))
        return features, labels

    def _source(self, loader: DataLoader[Any], split: str) -> Source:
        # A batch is never larger than the split: that is what the encoder would see in a step.
        items = cast(images.ImageItems, loader.dataset)
        size = min(int(loader.batch_size or 1), len(items))
        bucket = f"{plain_name(self.cfg.DATASET.NAME)}/{split}"
        settings = json.dumps(protocol.plain(self.cfg.INPUT), sort_keys=True) if items.is_random else ""
        return Source(items, bucket, size, self.cfg.DATALOADER.NUM_WORKERS, settings)

    def encode(self, inputs: Tensor) -> Tensor:
        """Return (B, embedding) features of a batch: of pictures (B, 3, H, W), or of features as they are."""
        if inputs.dim() == 2:
            return inputs
        return self.clip.encode_image_raw(inputs) if self.raw_images else self.clip.encode_image(inputs)

    def parse_batch_train(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        self.note_unreadable(dict(batch.get(images.UNREADABLE, [])))
        if "img" not in batch:
            return torch.empty(0), batch["label"]
        return batch["img"].to(self.device, non_blocking=True), batch["label"].to(self.device, non_blocking=True)

    def parse_batch_test(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        return self.parse_batch_train(batch)

    def note_unreadable(self, found: Mapping[str, str]) -> None:
        """Stop at unreadable pictures, or name each once, as DATASET.BAD_IMAGES says."""
        fresh = {path: reason for path, reason in found.items() if path not in self.unreadable}
        if fresh and self.cfg.DATASET.BAD_IMAGES == "stop":
            shown = "; ".join(f"{path} ({reason})" for path, reason in list(fresh.items())[:3])
            raise UserError(
                f"{len(fresh)} unreadable image(s): {shown}. "
                "Mend or remove them, or set DATASET.BAD_IMAGES skip to go on without."
            )
        for path, reason in fresh.items():
            print(f"Skipping unreadable image {path} ({reason})")
        self.unreadable.update(fresh)

    # ------------------------------------------------------------------ evaluation

    def test_batches(self, split: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the inputs and labels of the readable pictures of `val` or `test`."""
        yield from self.batches_of(self._loader(split), split)

    def batches_of(self, loader: DataLoader[Any], split: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the inputs and labels of the readable pictures of a loader over (a part of) `split`."""
        for inputs, labels, _ in self.indexed_batches(loader, split):
            yield inputs, labels

    def indexed_batches(self, loader: DataLoader[Any], split: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the same, and which items of the loader they are."""
        if self.features is None:
            for batch in progress(loader, len(loader), "evaluating"):
                inputs, labels = self.parse_batch_test(batch)
                if len(labels):
                    yield inputs, labels, batch["index"]
            return
        items = cast(images.ImageItems, loader.dataset)
        if items.features is None:
            self.features.load(self._source(loader, split), items.view, items.view, self.note_unreadable)
        good = [index for index, item in enumerate(items.items) if item.impath not in items.unreadable]
        labels = torch.tensor([items.items[index].label for index in good])
        features = cast(Tensor, items.features)[good]
        parts = (side.split(loader.batch_size or 1) for side in (features, labels, torch.tensor(good)))
        for rows, its, indices in zip(*parts, strict=True):
            yield rows.to(self.device), its.to(self.device), indices

    def _loader(self, split: str) -> DataLoader[Any]:
        loader = self.val_loader if split == "val" else self.test_loader
        if loader is None:
            raise UserError(f"The dataset {self.cfg.DATASET.NAME} has no {split} images.")
        return loader
