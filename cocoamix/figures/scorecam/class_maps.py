"""Compute class activation maps of several methods on images, and describe them as text and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from cocoamix.clip.class_names import plain_class
from cocoamix.features.images import ImageItems
from cocoamix.io.progress import progress
from cocoamix.predict.classifier import Classifier
from cocoamix.run.recorded import RecordedRun

from .explained import Array, Explained, Kept, explain
from .shown_images import Shown, prepare

COLUMNS = (
    *("image", "part", "label", "method", "run", "predicted", "probability", "right", "explained"),
    *("row", "column", "value"),
)


@dataclass(frozen=True)
class Map:
    """The prediction and the map of one method for one image.

    Attributes:
        predicted: The class that it predicts.
        probability: The probability of that class.
        right: Whether it is the image's label; None if the label is unknown.
        explained: The class that the map explains.
        values: The (rows, columns) map, from 0 to 1.
    """

    predicted: str
    probability: float
    right: bool | None
    explained: str
    values: Array


@dataclass(frozen=True)
class Maps:
    """The maps of methods on images.

    Attributes:
        methods: The folders of the runs by the names of the methods.
        images: The images.
        pixels: The (H, W, 3) pixels of each image, from 0 to 1, as the first method's model reads it.
        maps: For each image, the map of each method.
        target: Which class the maps explain: `predicted` or `label`.
    """

    methods: Mapping[str, str]
    images: Sequence[Shown]
    pixels: Sequence[Array]
    maps: Sequence[Sequence[Map]]
    target: str

    def part(self, start: int, end: int) -> Maps:
        """Return the maps of some of the images."""
        chosen = slice(start, end)
        return replace(self, images=self.images[chosen], pixels=self.pixels[chosen], maps=self.maps[chosen])


def compute(methods: Mapping[str, RecordedRun], images: Sequence[Shown], target: str, batch_size: int) -> Maps:
    """Return the maps. Only one model is in memory at a time."""
    kept: Kept = {}
    columns: list[list[Map]] = []
    pixels: list[Array] = []
    places = {
        classes: [n for n, one in enumerate(images) if one.classes == classes] for classes in _label_spaces(images)
    }
    for name, run in methods.items():
        found: dict[int, Map] = {}
        seen: dict[int, Array] = {}
        for classes, numbers in places.items():
            own = list(classes) == list(run.classnames)
            classifier = Classifier(run, () if own else classes, store=False)
            transform = cast(ImageItems, classifier.trainer.test_loader.dataset).transform
            tensors = prepare([images[number] for number in numbers], transform, classifier.upright)
            model = Explained(classifier, kept)
            for number, tensor in progress(list(zip(numbers, tensors, strict=True)), len(numbers), name):
                found[number] = _map(classifier, model, tensor, images[number], target, batch_size)
                seen[number] = _restore(tensor, transform)
        columns.append([found[number] for number in range(len(images))])
        pixels = pixels or [seen[number] for number in range(len(images))]
    maps = list(zip(*columns, strict=True))
    return Maps({name: str(run.folder) for name, run in methods.items()}, images, pixels, maps, target)


def _label_spaces(images: Sequence[Shown]) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(one.classes for one in images))


def _map(classifier: Classifier, model: Explained, tensor: Tensor, image: Shown, target: str, batch_size: int) -> Map:
    names = [plain_class(name) for name in classifier.classes]
    label = names.index(plain_class(image.label)) if image.label else None
    found = explain(model, tensor, label if target == "label" else None, batch_size)
    right = None if label is None else found.predicted == label
    classes = classifier.classes
    return Map(classes[found.predicted], found.probability, right, classes[found.explained], found.values)


def _restore(tensor: Tensor, transform: Any) -> Array:
    """Return a prepared image in its original colours."""
    image = tensor[0]
    for step in transform.transforms:
        if hasattr(step, "mean") and hasattr(step, "std"):
            mean, std = (torch.as_tensor(values).view(-1, 1, 1) for values in (step.mean, step.std))
            image = image * std + mean
    pixels: Array = image.clamp(0, 1).permute(1, 2, 0).numpy()
    return pixels


# ---------------------------------------------------------------------------------------- words and data


def describe(found: Maps) -> str:
    """Describe the maps in a few sentences."""
    which = "the predicted class" if found.target == "predicted" else "the label"
    count = len(found.images)
    sentences = [f"ScoreCAM of {which} on {count} {'images' if count > 1 else 'image'}."]
    known = [row for row in found.maps if row[0].right is not None]
    if known:
        rights = [f"{name} {sum(bool(row[n].right) for row in known)}" for n, name in enumerate(found.methods)]
        sentences.append(f"Correct labels, of {len(known)}: {', '.join(rights)}.")
    gaps = [
        np.abs(one.values - two.values)
        for row in found.maps
        for one, two in combinations(row, 2)
        if one.values.shape == two.values.shape
    ]
    if gaps:
        mean, most = float(np.mean([gap.mean() for gap in gaps])), float(max(gap.max() for gap in gaps))
        sentences.append(
            f"Maps of one image by two methods differ by {mean:.2f} of their scale on average over the cells, and by "
            f"{most:.2f} at most: the weights of channels are a softmax of probabilities, so no channel weighs more "
            "than e times as much as another."
        )
    return " ".join(sentences)


def table(found: Maps) -> Iterator[tuple[Any, ...]]:
    """Yield the maps as rows of COLUMNS, one for each cell."""
    for image, row in zip(found.images, found.maps, strict=True):
        for (name, folder), one in zip(found.methods.items(), row, strict=True):
            right = "" if one.right is None else int(one.right)
            about = (image.name, image.part, image.label, name, folder, one.predicted, one.probability, right)
            for (line, column), value in np.ndenumerate(one.values):
                yield (*about, one.explained, line + 1, column + 1, float(value))
