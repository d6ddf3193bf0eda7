"""The images of a run: its loaders, the augmentations of its training images, and their parts of the feature store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from yacs.config import CfgNode

from cocoamix.clip import not_finite
from cocoamix.clip.interface import AnyCLIP
from cocoamix.errors import UserError
from cocoamix.features.images import ImageItems
from cocoamix.features.source import ImageSource, StoreSettings
from cocoamix.features.unreadable import Unreadable
from cocoamix.model import IMAGES, RAW_FEATURES
from cocoamix.registry import plain_name

from . import protocol
from .course import Course
from .loaders import loader_over


class RunImages:
    """Reads the images of a run, or their stored features.

    Attributes:
        train_loader: The loader of all training images; in sessions, of those of the session.
        part: The end of the name of their part in the store.
        first_label: The label of the first class of the loss, which is 0 there.
        unreadable: The images that could not be read.
    """

    source: ImageSource

    def __init__(
        self, cfg: CfgNode, device: torch.device, loaders: Sequence[DataLoader[Any] | None], epochs: int = 0
    ) -> None:
        """Use the loaders of a data manager.

        Args:
            cfg: The configuration.
            device: Where the model is.
            loaders: Of all training, validation and test images.
            epochs: The most epochs of a model, if not OPTIM.MAX_EPOCH.
        """
        self.cfg, self.device = cfg, device
        self.train_loader, self.val_loader, self.test_loader = loaders
        self.whole_train, self.whole_test = self.train_loader, self.test_loader
        self.unreadable = Unreadable(cfg.DATASET.BAD_IMAGES)
        self.part, self.first_label, self._seed = "", 0, 0
        self._views = views = protocol.views(cfg, epochs)
        if views:
            what = "training images are one fixed centre crop, not augmented"
            cycle = f"the epochs cycle through {views} augmentations"
            print(f"Note: CACHE.VIEWS {views} departs from CoOp's protocol: {what if views == 1 else cycle}")

    def attach(self, clip: AnyCLIP, reads: str) -> None:
        """Use a model as the encoder. `reads` is what the method reads."""
        cache = self.cfg.CACHE
        settings = StoreSettings(
            mode="off" if reads == IMAGES else cache.MODE,
            folder=cache.DIR,
            dataset=plain_name(self.cfg.DATASET.NAME),
            workers=self.cfg.DATALOADER.NUM_WORKERS,
            transform=json.dumps(protocol.plain(self.cfg.INPUT), sort_keys=True),
        )
        self.clip = clip
        self.source = ImageSource(clip, settings, self.unreadable, reads == RAW_FEATURES)

    @property
    def seed(self) -> int:
        """Seed of the augmentations."""
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._seed = seed
        for loader in (self.train_loader, self.val_loader, self.test_loader):
            if loader is not None:
                cast(ImageItems, loader.dataset).seed = seed

    @property
    def train_items(self) -> Sequence[Any]:
        """All training items."""
        return cast(ImageItems, cast(DataLoader[Any], self.train_loader).dataset).items

    # ------------------------------------------------------------------ training images

    @property
    def encoded_at_once(self) -> int:
        """Number of training images encoded at once; batches of folds, episodes and base sessions have other sizes."""
        return min(int(self.cfg.DATALOADER.TRAIN_X.BATCH_SIZE), len(self.train_items))

    def loader_of(self, indices: Sequence[int] | None) -> DataLoader[Any]:
        """Return the training loader of some images; None for all."""
        whole = cast(DataLoader[Any], self.train_loader)
        if indices is not None:
            items = [self.train_items[index] for index in indices]
            whole = loader_over(self.cfg, whole, items, train=True, seed=self.seed)
        self.use(whole)
        return whole

    def use(self, loader: DataLoader[Any]) -> None:
        """Train with this loader."""
        self._used = loader

    def use_session(self, items: Sequence[Any], number: int, batch_size: int = 0) -> None:
        """Use the images of a session for training; those of the previous one are released.

        Args:
            items: Its training items.
            number: Its number.
            batch_size: Replaces the batch size of the configuration.
        """
        whole = cast(DataLoader[Any], self.whole_train)
        self.train_loader = loader_over(self.cfg, whole, items, True, self.seed, batch_size)
        self.part = f"/session{number}"

    def test_loader_of(self, items: Sequence[Any]) -> DataLoader[Any]:
        """Return a loader for the evaluation on some items."""
        return loader_over(self.cfg, cast(DataLoader[Any], self.whole_test), items, False, self.seed)

    def set_view(self, view: int, course: Course) -> None:
        """Give the training loader the images or features of an augmentation."""
        views = self._views
        last = min(views or course.total, course.total, course.views()) - 1
        view = view % views if views else view
        self.source.set_view(self._used, view, last, self._train_part, self.encoded_at_once)

    @property
    def _train_part(self) -> str:
        """The part of the feature store that holds the training images."""
        random_views = cast(ImageItems, cast(DataLoader[Any], self.train_loader).dataset).is_random
        return ("train" + f"-seed{self.seed}" * random_views) + self.part

    def plain_features(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features, labels and indices of the training images, without augmentation.

        Only images that can be read now are included; which these are may have changed since an epoch.
        """
        # The batch size affects the last bits. A resume may change the test batch size, but not the training one.
        size = int(self.cfg.DATALOADER.TRAIN_X.BATCH_SIZE)
        template = cast(DataLoader[Any], self.whole_test)
        loader = loader_over(self.cfg, template, self.train_items, train=False, seed=self.seed, batch_size=size)
        batches = self.source.batches(loader, "train" + self.part, self.device, self.encoded_at_once)
        features, labels, indices = self._joined(batches)
        return features, labels - self.first_label, indices

    @torch.no_grad()
    def view_features(self, most: int, course: Course) -> tuple[Tensor, Tensor]:
        """Return the features and labels of the training images in the last augmentations, at most `most`."""
        whole = cast(ImageItems, cast(DataLoader[Any], self.train_loader).dataset)
        loader = loader_over(self.cfg, cast(Any, self.train_loader), whole.items, train=False, seed=self.seed)
        items = cast(ImageItems, loader.dataset)
        items.is_random = whole.is_random
        end = min(self._views or course.total, course.total, course.views())
        parts = []
        for view in range(max(0, end - most), end):
            items.view, items.features = view, None
            batches = self.source.batches(loader, self._train_part, self.device, self.encoded_at_once)
            parts.append(self._joined(batches)[:2])
        features, labels = (torch.cat(side) for side in zip(*parts, strict=True))
        return features, labels

    def _joined(self, batches: Iterator[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
        encoded = [(self.encode(inputs), labels, indices) for inputs, labels, indices in batches]
        if not encoded:  # none can be read
            return torch.empty(0), torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
        features, labels, indices = (torch.cat(side) for side in zip(*encoded, strict=True))
        return features, labels, indices

    # ------------------------------------------------------------------ any images

    def encode(self, inputs: Tensor) -> Tensor:
        """Return the (B, embedding) features of a batch of images; a batch of features is returned unchanged."""
        return self.source.encode(inputs)

    def read(self, batch: Mapping[str, Any], train: bool = False) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels of a batch, in training those of the loss; record its unreadable images."""
        inputs, labels = self.source.read(batch, self.device)
        return inputs, labels - self.first_label if train else labels

    def loader(self, split: str) -> DataLoader[Any]:
        """Return the loader of `val` or `test`."""
        loader = self.val_loader if split == "val" else self.test_loader
        if loader is None:
            raise UserError(f"The dataset {self.cfg.DATASET.NAME} has no {split} images.")
        return loader

    def batches(self, loader: DataLoader[Any], part: str) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the inputs, labels and indices of a loader's readable images. `part` is theirs in the store."""
        yield from self.source.batches(loader, part, self.device)

    def print_skipped(self) -> None:
        """Print how many images could not be read."""
        if self.unreadable:
            print(f"{len(self.unreadable)} unreadable image{'s' * (len(self.unreadable) > 1)} skipped so far")

    def fault(self, inputs: Tensor, classnames: Sequence[str]) -> UserError | None:
        """Return the error of the frozen model that explains a non-finite loss or logit, if there is one."""
        for clip in self.clip.each():
            # Stored features are known to be finite: see `cocoamix.features`.
            images = clip.encode_image_raw(inputs) if inputs.dim() == 4 else None
            fault = None if images is None else not_finite.in_images(clip, images, self.source.files)
            fault = fault or not_finite.in_text(clip, list(classnames))
            if fault is not None:
                return fault
        return None
