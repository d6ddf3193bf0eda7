"""ImageNetV2: new photographs of ImageNet's thousand classes, collected as the original ones were."""

from __future__ import annotations

from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.errors import UserError
from cocoamix.registry import register

from .common.base import Items
from .common.imagenet_folders import ImageNetVariant, read_folders
from .common.items import class_folders


@register(DATASET_REGISTRY)
class ImageNetV2(ImageNetVariant):
    """Ten photographs per class; folders are numbered in the order of `classnames.txt`."""

    folder = "imagenetv2"
    image_folder = "imagenetv2-matched-frequency-format-val"

    def read_variant(self, images: Path, classnames: dict[str, str]) -> Items:
        numbered = {str(label): name for label, name in enumerate(classnames.values())}
        for folder in sorted(numbered.keys() ^ set(class_folders(images))):
            raise UserError(
                f"The folders of {images} should be 0 to {len(numbered) - 1}, one for each line of classnames.txt; "
                f"{folder} is {'missing' if folder in numbered else 'not one of them'}."
            )
        return read_folders(images, numbered, numbered)
