"""Class names and image folders of ImageNet and its four variants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cocoamix.errors import UserError

from .base import FewShotDataset, Items, SplitItems
from .items import class_folders, list_images, many_objects, new_item, read_lines, report_left_out

CLASSNAMES = "classnames.txt"


def read_classnames(path: Path) -> dict[str, str]:
    """Return the class name of every folder, in the order of the file: `n01440764 tench`."""

    def parse(line: str) -> tuple[str, str]:
        folder, _, name = line.partition(" ")
        if not name.strip():
            raise ValueError(line)
        return folder, name

    return dict(read_lines(path, parse, "a folder and a class name"))


def read_folders(images: Path, folders: Iterable[str], classnames: Mapping[str, str]) -> Items:
    """Return the images of the folders, labelled in the given order."""
    items: Items = []
    left_out: list[str] = []
    with many_objects():
        for label, folder in enumerate(folders):
            if folder not in classnames:
                raise UserError(f"{images / folder} is not a known class: {CLASSNAMES} has no line for {folder}.")
            name = classnames[folder]
            items += [new_item(path, label, name) for path in list_images(images / folder, left_out)]
    report_left_out(left_out)
    return items


class ImageNetVariant(FewShotDataset):
    """A dataset for testing models that were trained on ImageNet. Its test items also define the classes."""

    image_folder = "images"

    def read_items(self) -> SplitItems:
        # CoOp silently ignores this key here, so that a result on all classes is named after a half.
        if self.cfg.DATASET.SUBSAMPLE_CLASSES != "all":
            raise UserError(
                f"DATASET.SUBSAMPLE_CLASSES is {self.cfg.DATASET.SUBSAMPLE_CLASSES!r}, but {type(self).__name__} is "
                "tested on all of its classes: use 'all'."
            )
        folder = self.find_folder(self.image_folder, CLASSNAMES)
        items = self.read_variant(folder / self.image_folder, read_classnames(folder / CLASSNAMES))
        return items, [], items

    def read_variant(self, images: Path, classnames: dict[str, str]) -> Items:
        """Return the items; labels follow the sorted folders, which may be fewer than ImageNet's."""
        return read_folders(images, class_folders(images), classnames)

    def few_shot(self, train: Items, val: Items) -> tuple[Items, Items]:
        return train, val  # no draw, because nothing is trained on them
