"""ImageNet: a thousand classes, 1.28 million training images."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY
from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.io.screen import detail
from cocoamix.registry import register

from .common.base import FewShotDataset, Items, SplitItems
from .common.imagenet_folders import CLASSNAMES, read_classnames, read_folders
from .common.items import class_folders, paths_of, rerooted
from .common.missing import policy_of, refuse_missing
from .common.pickles import read_items, write_items

LIST_FILE = "preprocessed.pkl"  # saved list of all images, as in CoOp


@register(DATASET_REGISTRY)
class ImageNet(FewShotDataset):
    """ImageNet's validation images are both val and test, as in CoOp. Few-shot draws reduce only train."""

    folder = "imagenet"
    image_folder = "images"
    drawn = ("train",)

    def __init__(self, cfg: CfgNode) -> None:
        super().__init__(cfg)
        # Check only the images that are used, because checking a million files takes minutes.
        advice = f"If the images have changed, delete {LIST_FILE} and split_fewshot/ there."
        refuse_missing(paths_of(self.train_x, self.test or ()), self.dataset_dir, policy_of(cfg), advice)

    def read_items(self) -> SplitItems:
        folder = self.find_folder(self.image_folder)
        saved = folder / LIST_FILE
        if saved.is_file():
            detail(f"Loading the list of images from {saved}")
            train, test = self._read_list(saved)
        else:
            train, test = self._read_folders(folder)
            write_items(saved, {"train": train, "test": test}, "the list of images")
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

    def _read_list(self, path: Path) -> tuple[Items, Items]:
        train, test = read_items(path, ("train", "test"), "a list of ImageNet's images")
        for items in (train, test):
            paths = paths_of(items)
            # The first path shows whether the data folder has moved; checking a million takes long.
            if rerooted(paths[:1], self.dataset_dir) != paths[:1]:
                for item, new_path in zip(items, rerooted(paths, self.dataset_dir), strict=True):
                    item._impath = new_path
        return train, test
