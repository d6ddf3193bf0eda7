"""The small world of pictures as datasets: Shapes, ShapesSketch and ShapesNight.

They need no data folder: a picture is drawn when it is read. Where DATASET.ROOT holds the files that
`python -m cocoamix.shapes write` makes, those are read instead; they are the same pictures.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY, Datum
from PIL import Image

from cocoamix.registry import PREFIX, register
from cocoamix.shapes import DATASETS, PictureSet
from cocoamix.shapes.drawing import Pixels, drawing_hash

from .base import Items, SplitDataset


@lru_cache(maxsize=8192)  # 25 MB; every epoch sees the same pictures
def _drawn(pictures: PictureSet, label: int, number: int) -> Pixels:
    return pictures.draw(label, number)


class DrawnDatum(Datum):
    """An item without a file: its path is only a name."""

    def __init__(self, pictures: PictureSet, label: int, number: int) -> None:
        # Not super().__init__, which looks for the file.
        self._classname = pictures.classes[label].name
        self._impath = f"{pictures.folder}/{self._classname.replace(' ', '_')}/{number:04d}.png"
        self._label, self._domain = label, 0
        self._drawing = pictures, label, number  # stays what it is when the item is relabelled

    @property
    def identity(self) -> str:
        """What changes when the picture does: the way of drawing, or what is drawn."""
        pictures, label, number = self._drawing
        return f"{drawing_hash()}|{pictures}|{pictures.classes[label]}|{number}"

    def draw(self) -> Image.Image:
        """Draw the picture."""
        return Image.fromarray(_drawn(*self._drawing))


class _WorldDataset(SplitDataset):
    """A dataset of the small world, found by its class name."""

    image_folder = "images"

    def read_items(self) -> tuple[Items, Items, Items]:
        pictures = DATASETS[type(self).__name__.removeprefix(PREFIX)]
        self.folder, self.split_file = pictures.folder, f"split_zhou_{pictures.name}.json"
        if self.cfg.DATASET.ROOT and Path(self.cfg.DATASET.ROOT).expanduser().joinpath(self.folder).is_dir():
            return super().read_items()
        train, val, test = (
            [DrawnDatum(pictures, label, number) for label, number in pictures.items(split)]
            for split in ("train", "val", "test")
        )
        return list(train), list(val), list(test)


@register(DATASET_REGISTRY)
class Shapes(_WorldDataset):
    """Shapes seen in the street: cluttered, tilted, noisy. The dataset to train on."""


@register(DATASET_REGISTRY)
class ShapesSketch(_WorldDataset):
    """Other compositions, drawn by hand."""


@register(DATASET_REGISTRY)
class ShapesNight(_WorldDataset):
    """Other compositions, at night."""
