"""OxfordFlowers: 102 kinds of flowers."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.errors import UserError
from cocoamix.registry import register

from .common.base import SplitDataset, SplitItems
from .common.matlab import read_matlab
from .common.splits import split_groups


@register(DATASET_REGISTRY)
class OxfordFlowers(SplitDataset):
    """The archive has only class numbers; `cat_to_name.json` has the names."""

    folder = "oxford_flowers"
    image_folder = "jpg"
    split_file = "split_zhou_OxfordFlowers.json"

    def make_split(self, folder: Path, images: Path) -> SplitItems:
        labels = read_matlab(folder / "imagelabels.mat", "labels", self.split_file)[0]
        names = folder / "cat_to_name.json"
        groups: dict[int, list[str]] = defaultdict(list)  # labels from 1 on, in the order of the images
        for number, label in enumerate(labels, start=1):
            groups[int(label)].append(os.path.join(images, f"image_{number:05d}.jpg"))
        try:
            flowers = json.loads(names.read_text(encoding="utf-8"))
            return split_groups([(label - 1, flowers[str(label)], paths) for label, paths in groups.items()])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{names} must have a name for every class number: {error!r}.") from error
