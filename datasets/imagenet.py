"""ImageNet: a thousand classes, 1.28 million training images."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.io.screen import detail
from cocoamix.registry import register

from .common.base import FewShotDataset, Items, Three
from .common.imagenet_folders import CLASSNAMES, read_classnames, read_folders
from .common.items import class_folders, paths_of, rerooted
from .common.missing import policy_of, refuse_missing
from .common.pickles import read_items, write_items

KEPT = "preprocessed.pkl"


@register(DATASET_REGISTRY)
class ImageNet(FewShotDataset):
    """ImageNet's validation images are both val and test, as in CoOp; only training images are drawn."""

    folder = "imagenet"
    image_folder = "images"
    drawn = ("train",)

    def __init__(self, cfg: CfgNode) -> None:
        super().__init__(cfg)
        # Only the images that are used, because checking a million files takes minutes.
        way_out = f"If the images have changed, delete {KEPT} and split_fewshot/ there."
        refuse_missing(paths_of(self.train_x, self.test or ()), self.dataset_dir, policy_of(cfg), way_out)

    def read_items(self) -> Three:
        folder = self.find_folder(self.image_folder)
        kept = folder / KEPT
        if kept.is_file():
            detail(f"Loading the list of images from {kept}")
            train, test = self._read_kept(kept)
        else:
            train, test = self._read_folders(folder)
            write_items(kept, {"train": train, "test": test}, "the list of images")
        return train, test, test

    def _read_folders(self, folder: Path) -> tuple[Items, Items]:
        images = folder / self.image_folder
        self.find_folder(f"{self.image_folder}/train", f"{self.image_folder}/val", CLASSNAMES)
        classnames = read_classnames(folder / CLASSNAMES)
        folders = class_folders(images / "train")
        for name in sorted(set(folders) ^ set(class_folders(images / "val"))):
            raise UserError(
                f"The class folder {name} is in only one of {images / 'train'} and {images / 'val'}; both need it. "
                "The validation images must be sorted into folders of classes."
            )
        train, test = (read_folders(images / split, folders, classnames) for split in ("train", "val"))
        return train, test

    def _read_kept(self, path: Path) -> tuple[Items, Items]:
        train, test = read_items(path, ("train", "test"), "a list of ImageNet's images")
        for items in (train, test):
            places = paths_of(items)
            # The first path shows whether the data folder has moved; checking a million takes long.
            if rerooted(places[:1], self.dataset_dir) != places[:1]:
                for item, place in zip(items, rerooted(places, self.dataset_dir), strict=True):
                    item._impath = place
        return train, test
