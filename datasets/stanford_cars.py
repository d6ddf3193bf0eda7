"""StanfordCars: 196 models of cars, with their years."""

from __future__ import annotations

import os
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.errors import UserError
from cocoamix.registry import register

from .common.base import Items, SplitDataset, SplitItems
from .common.items import new_item
from .common.matlab import read_matlab
from .common.splits import split_trainval


@register(DATASET_REGISTRY)
class StanfordCars(SplitDataset):
    """The year comes first in a class name: "2012 Acura TL Sedan"."""

    folder = "stanford_cars"
    split_file = "split_zhou_StanfordCars.json"

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        models = read_matlab(folder / "devkit" / "cars_meta.mat", "class_names", self.split_file)[0]
        names = [_year_first(str(model[0])) for model in models]
        trainval = self._read_list(folder / "devkit" / "cars_train_annos.mat", images / "cars_train", names)
        test = self._read_list(folder / "cars_test_annos_withlabels.mat", images / "cars_test", names)
        train, val = split_trainval(trainval)
        return train, val, test

    def _read_list(self, path: Path, images: Path, names: list[str]) -> Items:
        rows = read_matlab(path, "annotations", self.split_file)[0]
        try:
            labelled = [(str(row["fname"][0]), int(row["class"][0, 0]) - 1) for row in rows]
            return [new_item(os.path.join(images, name), label, names[label]) for name, label in labelled]
        except (ValueError, IndexError, TypeError) as error:
            raise UserError(
                f"{path} must have a file name and a class of cars_meta.mat for each image: {error}."
            ) from error


def _year_first(model: str) -> str:
    *words, year = model.split(" ")
    return " ".join([year, *words])
