"""FGVCAircraft: a hundred variants of aircraft."""

from __future__ import annotations

import os
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY, Datum

from cocoamix.registry import register

from .common.base import FewShotDataset, Items, SplitItems
from .common.items import new_item, paths_of, read_lines
from .common.missing import policy_of, refuse_missing


@register(DATASET_REGISTRY)
class FGVCAircraft(FewShotDataset):
    """The official lists of variants are the split; there is no split file."""

    folder = "fgvc_aircraft"
    image_folder = "images"

    def read_items(self) -> SplitItems:
        folder = self.find_folder(self.image_folder, "variants.txt")
        variants = read_lines(folder / "variants.txt", str, "a variant")
        labels = {name: label for label, name in enumerate(variants)}
        train, val, test = (
            _read_list(folder / f"images_variant_{split}.txt", folder / self.image_folder, labels)
            for split in ("train", "val", "test")
        )
        refuse_missing(paths_of(train, val, test), f"images_variant_*.txt in {folder}", policy_of(self.cfg))
        return train, val, test


def _read_list(path: Path, images: Path, labels: dict[str, int]) -> Items:
    def parse(line: str) -> Datum:
        number, _, variant = line.partition(" ")
        return new_item(os.path.join(images, f"{number}.jpg"), labels[variant], variant)

    return read_lines(path, parse, "an image number and a variant of variants.txt")
