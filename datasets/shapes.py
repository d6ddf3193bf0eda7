"""The synthetic datasets: five with a theme each, and `Shapes`, which has none.

They need no data folder: an image is drawn when it is read. Where DATASET.ROOT holds the files that
`cocoamix shapes write` makes, those are read instead; they are the same images.
"""

from __future__ import annotations

from functools import lru_cache

from dassl.data.datasets import DATASET_REGISTRY, Datum
from PIL import Image

from cocoamix.io.paths import expand_home
from cocoamix.registry import PREFIX, register
from cocoamix.shapes import DATASETS, SyntheticDataset
from cocoamix.shapes.drawing import Pixels, drawing_hash

from .common.base import Items, SplitDataset


@lru_cache(maxsize=8192)  # 25 MB; every epoch sees the same images
def _drawn(dataset: SyntheticDataset, label: int, number: int) -> Pixels:
    return dataset.draw(label, number)


class SyntheticDatum(Datum):
    """An item without a file: its path is only a name."""

    def __init__(self, dataset: SyntheticDataset, label: int, number: int) -> None:
        # Not super().__init__, which checks the file.
        self._classname = dataset.classes[label].name
        self._impath = f"{dataset.folder}/{self._classname.replace(' ', '_')}/{number:04d}.png"
        self._label, self._domain = label, 0
        self._drawing = dataset, label, number  # unchanged when the item is relabelled

    @property
    def identity(self) -> str:
        """A string that changes with the image, that is with the drawing code or its arguments."""
        dataset, label, number = self._drawing
        drawn = f"{dataset.domain}|{dataset.severity}|{dataset.seed}"
        return f"{drawing_hash()}|{drawn}|{dataset.classes[label]}|{number}"

    def draw(self) -> Image.Image:
        """Draw the image."""
        return Image.fromarray(_drawn(*self._drawing))


class Synthetic(SplitDataset):
    """A synthetic dataset, found by its class name."""

    image_folder = "images"

    def read_items(self) -> tuple[Items, Items, Items]:
        dataset = DATASETS[type(self).__name__.removeprefix(PREFIX)]
        self.folder, self.split_file = dataset.folder, f"split_zhou_{dataset.name}.json"
        if self.cfg.DATASET.ROOT and expand_home(self.cfg.DATASET.ROOT).joinpath(self.folder).is_dir():
            return super().read_items()
        train, val, test = (
            [SyntheticDatum(dataset, label, number) for label, number in dataset.items(split)]
            for split in ("train", "val", "test")
        )
        return list(train), list(val), list(test)


for _name in DATASETS:
    register(DATASET_REGISTRY)(type(_name, (Synthetic,), {"__module__": __name__, "__doc__": Synthetic.__doc__}))
