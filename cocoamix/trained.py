"""The model of a finished run, ready to classify images of any classes."""

from __future__ import annotations

import contextlib
import copy
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from yacs.config import CfgNode

from cocoamix.clip.class_names import distinct, plain_class, tidy_class
from cocoamix.errors import UserError, brief
from cocoamix.features.images import ImageItems, collate
from cocoamix.features.memory import AnyImage, Item, as_item, as_many
from cocoamix.features.source import ImageSource, StoreSettings
from cocoamix.features.unreadable import Unreadable
from cocoamix.io.paths import expand_home
from cocoamix.loading import Record, build, read_record
from cocoamix.model import IMAGES, RAW_FEATURES, Classifier, PromptModel

_AT_ONCE = 1024  # images per pass, which bounds the features in memory


class Scores(NamedTuple):
    """The result for one image: (C,) probabilities, or None and why the image cannot be read."""

    item: Item
    probabilities: Tensor | None
    reason: str = ""


class TrainedModel:
    """The model of a finished run, ready to classify.

    Attributes:
        classes: Names of the classes, in the order of probabilities. Classes that share a name are numbered.
        trained_classes: The classes among them that the model was trained on.
        calibrated: Whether probabilities use a temperature that was fitted to held-out images.
        classifier: The classifier of these classes, which an evaluation uses as well.
        model: The module.
        cfg: The configuration of the run.
        record: What the run recorded.
    """

    kept_alive: object = None  # an object that lives as long as the model, such as the temporary folder of its run

    def __init__(self, record: Record, weights: str = "", store: bool = True) -> None:
        self.record: Record = record
        self.cfg: CfgNode
        self.model: PromptModel
        try:
            with _silence():
                self.cfg, self.model = build(record, weights)
            self._use(None)
        except UserError as error:
            raise UserError(f"The run in {record.folder} cannot be used. {error}") from error
        # Nothing is written where results.json says, because the folder may come from somebody else.
        self._store = StoreSettings("test" if store else "off", "", "predict", self._workers, "")

    @torch.no_grad()
    def _use(self, names: Sequence[str] | None) -> None:
        """Classify these classes; None for those of the run."""
        known = self.record.classnames
        self._names = list(names or known)  # as they appear in prompts
        with _silence():
            self.classifier: Classifier = self.model.classifier(None if self._names == known else self._names)
        self.classes: list[str] = distinct(self._names)
        trained = {plain_class(name) for name in known} if self.record.trained else set()
        pairs = zip(self.classes, self._names, strict=True)
        self.trained_classes: list[str] = [shown for shown, name in pairs if plain_class(name) in trained]
        # The temperature was fitted to the training classes.
        self.calibrated: bool = bool(self.classifier.facts.get("calibrated")) and self.of_training

    def __repr__(self) -> str:
        return f"TrainedModel({str(self.record.folder)!r}, {self.record.trainer}, {len(self.classes)} classes)"

    @property
    def of_training(self) -> bool:
        """Whether the classes are those of the run, in the same order."""
        return self._names == self.record.classnames

    @property
    def upright(self) -> bool:
        """Whether images are rotated by their EXIF orientation, as in training."""
        return "images" in self.record.protocol

    def with_classes(self, names: Sequence[str], keep: bool = True) -> TrainedModel:
        """Return the model with other classes, without training.

        Args:
            names: The classes.
            keep: Whether to add them to the current classes instead of replacing those.
        """
        present = self._names if keep else []
        check_different(names, [*present, *(self.classes if keep else [])])  # outputs append a number to shared names
        other = copy.copy(self)
        other._use([*present, *names])
        return other

    def predict(self, images: Iterable[AnyImage] | AnyImage) -> list[str]:
        """Return the most probable class of each image."""
        return [self.classes[number] for number in self.probabilities(images).argmax(dim=1).tolist()]

    def probabilities(self, images: Iterable[AnyImage] | AnyImage) -> Tensor:
        """Return the (N, C) probabilities of images.

        Args:
            images: Paths, PIL images, arrays or tensors; one or several.
        """
        rows = [torch.empty(0, len(self.classes))]
        for scores in self.stream(as_item(image, n, self.upright) for n, image in enumerate(as_many(images))):
            if scores.probabilities is None:
                raise UserError(f"{scores.item.impath} cannot be read: {scores.reason}.")
            rows.append(scores.probabilities[None])
        return torch.cat(rows[1:] or rows)

    # ------------------------------------------------------------------ images

    @property
    def _workers(self) -> int:
        return min(int(self.cfg.DATALOADER.NUM_WORKERS), os.cpu_count() or 1)

    @cached_property
    def _source(self) -> ImageSource:
        raw = self.model.reads == RAW_FEATURES
        store = self._store if self.model.reads != IMAGES else StoreSettings("off", "", "", 0, "")
        return ImageSource(self.model.clip, store, Unreadable("skip"), raw)

    @cached_property
    def transform(self) -> Any:
        """The preprocessing of images, as in the run's evaluation."""
        from cocoamix.features.transforms import build_transform

        return build_transform(self.cfg, is_train=False)

    def stream(self, items: Iterable[Item]) -> Iterator[Scores]:
        """Yield the scores of images in order, with a bounded number of images in memory."""
        chunk: list[Item] = []
        for item in items:
            chunk.append(item)
            if len(chunk) == _AT_ONCE:
                yield from self._scores(chunk)
                chunk = []
        if chunk:
            yield from self._scores(chunk)

    @torch.no_grad()
    def _scores(self, items: Sequence[Item]) -> list[Scores]:
        rows: dict[int, Tensor] = {}
        with _silence():  # unreadable images are named by the caller
            listed = ImageItems(self.cfg, items, self.transform)
            size, workers = self.cfg.DATALOADER.TEST.BATCH_SIZE, self._workers
            loader = DataLoader(listed, size, num_workers=workers, collate_fn=collate)
            device = self.model.clip.each()[0].device
            for inputs, _, indices in self._source.batches(loader, "images", device):
                reads_images = self.model.reads == IMAGES
                features = self.classifier.encode(inputs) if reads_images else self._source.encode(inputs)
                logits = self.classifier.logits(features).double()
                if not torch.isfinite(logits).all():
                    raise UserError("The logits of some images are not finite. Evaluate the run to find the cause.")
                rows.update(zip(indices.tolist(), logits.softmax(dim=1).cpu(), strict=True))
        reasons = self._source.unreadable
        return [Scores(item, rows.get(n), reasons.get(item.impath, "")) for n, item in enumerate(items)]


def load(run: str | os.PathLike[str], weights: str = "", store: bool = True) -> TrainedModel:
    """Return the model of a finished run.

    Args:
        run: The run's output folder.
        weights: File of the CLIP weights, if it has moved since the run.
        store: Whether to use the feature store.
    """
    return TrainedModel(read_record(expand_home(run)), weights, store)


def check_different(names: Sequence[str], present: Sequence[str] = ()) -> None:
    """Raise a UserError if two classes share a name, because their prompts would be the same.

    Args:
        names: Names of new classes.
        present: Names of the existing classes, some of which may already share a name.
    """
    seen = {plain_class(tidy_class(name)): name for name in present}
    for name in names:
        plain = plain_class(tidy_class(name))
        if not plain:
            raise UserError(f"A class name is empty: {brief(name)}. Remove it, or give the class a name.")
        if plain in seen:
            spelt = "" if name == seen[plain] else f" ({brief(seen[plain])})"
            raise UserError(f"The class {brief(name)} occurs twice{spelt}. Give every class a different name.")
        seen[plain] = name


def _silence() -> Any:
    return contextlib.redirect_stdout(io.StringIO())
