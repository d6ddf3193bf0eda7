"""A trained classifier: labels and probabilities for images, including classes it was not trained on."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from cocoamix.clip.class_names import distinct, plain_class, tidy_class
from cocoamix.errors import UserError, brief
from cocoamix.io.paths import expand_home
from cocoamix.run.given import Item
from cocoamix.run.recorded import RecordedRun, find_run

from .images import AnyImage, as_item, as_many
from .inputs import Labels, labels_of
from .opening import has_temperature, open_trainer

if TYPE_CHECKING:
    from cocoamix.trainers.base import CLIPTrainer

_AT_ONCE = 1024  # images per pass, which bounds the features in memory


class Scores(NamedTuple):
    """The result for one image.

    Attributes:
        item: The image.
        probabilities: (C,) over the classes; None if the image cannot be read.
        reason: Why it cannot be read.
    """

    item: Item
    probabilities: Tensor | None
    reason: str = ""


class Classifier:
    """A finished run, ready to classify.

    Attributes:
        classes: Names of the classes, in the order of probabilities. Classes that share a name are numbered.
        trained_classes: The classes among them that the model was trained on.
        calibrated: Whether probabilities use a temperature that was fitted to held-out images.
        run: The record of the run.
        trainer: Its trainer, for anything that the methods here do not offer.
    """

    kept_alive: object = None  # an object that the classifier keeps alive, such as the temporary folder of its run

    def __init__(self, run: RecordedRun, names: Sequence[str] = (), weights: str = "", store: bool = True) -> None:
        if not run.classnames:
            raise UserError(f"The results in {run.folder} do not list their classes. Evaluate the run again.")
        self.run: RecordedRun = run
        self._weights, self._store = weights, store
        self.trainer: CLIPTrainer = open_trainer(run, names, weights, store)
        with torch.no_grad(), _silence():
            self._names = self.trainer.begin_inference()  # as they appear in prompts
        self.classes: list[str] = distinct(self._names)
        known = {plain_class(name) for name in run.classnames} if run.trained else set()
        self.trained_classes: list[str] = [
            shown for shown, name in zip(self.classes, self._names, strict=True) if plain_class(name) in known
        ]
        # The temperature was fitted to the training classes.
        self.calibrated: bool = has_temperature(run) and self.of_training

    def __repr__(self) -> str:
        return f"Classifier({str(self.run.folder)!r}, {self.run.trainer}, {len(self.classes)} classes)"

    @property
    def labels(self) -> Labels:
        """The meaning of names of folders, and of cells of tables, as labels."""
        return labels_of(self.run, self.classes)

    @property
    def of_training(self) -> bool:
        """Whether the classes are those of the run, in the same order."""
        return self._names == list(self.run.classnames)

    def with_classes(self, names: Sequence[str], keep: bool = True) -> Classifier:
        """Return a classifier with other classes, without training.

        Args:
            names: The classes.
            keep: Whether to add them to the current classes instead of replacing those.
        """
        present = self._names if keep else []
        refuse_same(names, [*present, *(self.classes if keep else [])])  # outputs append a number to shared names
        found = Classifier(self.run, [*present, *names], self._weights, self._store)
        found.kept_alive = self.kept_alive
        return found

    def predict(self, images: Iterable[AnyImage] | AnyImage) -> list[str]:
        """Return the most probable class of each image."""
        return [self.classes[number] for number in self.probabilities(images).argmax(dim=1).tolist()]

    def probabilities(self, images: Iterable[AnyImage] | AnyImage) -> Tensor:
        """Return the (N, C) probabilities of images.

        Args:
            images: Paths, PIL images, arrays or tensors; one or several.
        """
        items = [as_item(image, number, self.upright) for number, image in enumerate(as_many(images))]
        rows = []
        for scores in self.stream(items):
            if scores.probabilities is None:
                raise UserError(f"{scores.item.impath} cannot be read: {scores.reason}.")
            rows.append(scores.probabilities)
        return torch.stack(rows) if rows else torch.empty(0, len(self.classes))

    @property
    def upright(self) -> bool:
        """Whether images are rotated by their EXIF orientation, as in training."""
        return "images" in self.run.protocol

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
        from cocoamix.run.loaders import loader_over

        trainer = self.trainer
        loader = loader_over(trainer.cfg, trainer.test_loader, items, train=False, seed=trainer.seed)
        found: dict[int, Tensor] = {}
        with _silence():  # unreadable images are named by the caller
            for inputs, _, indices in trainer.images.batches(loader, "predict", trainer.device):
                logits = trainer.infer(trainer.encode(inputs)).double()
                if not torch.isfinite(logits).all():
                    raise UserError("The logits of some images are not finite. Evaluate the run to find the cause.")
                rows = logits.softmax(dim=1).cpu()
                found.update(zip(indices.tolist(), rows, strict=True))
        reasons = trainer.unreadable
        return [Scores(item, found.get(n), reasons.get(item.impath, "")) for n, item in enumerate(items)]


def load(run: str | os.PathLike[str], weights: str = "", store: bool = True) -> Classifier:
    """Return the classifier of a finished run.

    Args:
        run: The run's output folder.
        weights: File of the CLIP weights, if it has moved since the run.
        store: Whether to use the feature store.
    """
    return Classifier(find_run(expand_home(run)), weights=weights, store=store)


def refuse_same(names: Sequence[str], present: Sequence[str] = ()) -> None:
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
    import contextlib
    import io

    return contextlib.redirect_stdout(io.StringIO())


__all__ = ["Classifier", "Scores", "load", "refuse_same"]
