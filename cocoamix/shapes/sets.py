"""The synthetic datasets: their classes in label order, and how their images are drawn.

Each dataset has a theme: its base classes vary in other attributes than its new classes, as the halves of real datasets
show different things. `Shapes` has no theme, so its halves are similar.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

from cocoamix.dataset_table import DATASETS as KNOWN

from .drawing import Pixels, draw
from .world import COLOURS, SHAPES, TEXTURES, Composition, compositions


@dataclass(frozen=True)
class Kind:
    """The compositions from which one half of a dataset takes its classes."""

    colours: tuple[str, ...] = tuple(COLOURS)
    textures: tuple[str, ...] = TEXTURES
    shapes: tuple[str, ...] = SHAPES

    def __contains__(self, one: Composition) -> bool:
        return one.colour in self.colours and one.texture in self.textures and one.shape in self.shapes


@dataclass(frozen=True)
class SyntheticDataset:
    """A dataset: its classes in label order, how its images are drawn, and how many images each class has."""

    name: str
    domain: str
    severity: float
    seed: int
    base_kind: Kind = Kind()
    new_kind: Kind = Kind()
    base: int = 30  # classes in the base half, which CoOp's rule makes the first ceil(n / 2) labels
    new: int = 30
    train: int = 24
    val: int = 8
    test: int = 30

    @property
    def folder(self) -> str:
        """Folder of the dataset in CoOp's layout, below the data root."""
        return KNOWN[self.name].folder

    @property
    def classes(self) -> tuple[Composition, ...]:
        """The classes in label order."""
        return _choose_classes(self.base_kind, self.base, self.new_kind, self.new, self.seed)

    def items(self, split: str) -> Iterator[tuple[int, int]]:
        """Yield (label, item) of every image of `train`, `val` or `test`, class by class."""
        first = {"train": 0, "val": self.train, "test": self.train + self.val}[split]
        count = {"train": self.train, "val": self.val, "test": self.test}[split]
        yield from product(range(len(self.classes)), range(first, first + count))

    def draw(self, label: int, item: int) -> Pixels:
        """Draw one image of the class `label`."""
        return draw(self.classes[label], self.domain, self.seed, item, self.severity)


def _without(names: Iterable[str], left_out: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in left_out)


_FEW_SHAPES, _FEW_COLOURS = ("circle", "star", "house"), ("red", "green", "blue")
_WARM, _COOL = ("red", "orange", "yellow", "pink", "brown"), ("green", "blue", "purple", "cyan", "gray")
_ROUND = ("circle", "heart", "flower", "drop", "moon", "fish", "tree")
_TWO_COLOURS, _FOUR_SHAPES = ("red", "blue"), ("circle", "star", "house", "fish")
_SOLID, _PATTERNED = ("plain", "hollow"), ("striped", "checkered", "dotted")

# Seeds are far from those of pre-training, so that no image is in both.
FAMILY: tuple[SyntheticDataset, ...] = (
    SyntheticDataset(
        "ColourShape",
        domain="underwater",
        severity=0.7,
        seed=9002,
        base_kind=Kind(shapes=_FEW_SHAPES),
        new_kind=Kind(colours=_FEW_COLOURS, shapes=_without(SHAPES, _FEW_SHAPES)),
    ),
    SyntheticDataset(
        "WarmCool",
        domain="sunset",
        severity=0.8,
        seed=9013,
        base_kind=Kind(colours=_WARM),
        new_kind=Kind(colours=_COOL),
    ),
    SyntheticDataset(
        "RoundAngular",
        domain="evening",
        severity=0.75,
        seed=9005,
        base_kind=Kind(shapes=_ROUND),
        new_kind=Kind(shapes=_without(SHAPES, _ROUND)),
    ),
    SyntheticDataset(
        "PlainPattern",
        domain="sketch",
        severity=3.8,
        seed=9100,
        base_kind=Kind(textures=_SOLID),
        new_kind=Kind(textures=_PATTERNED),
    ),
    SyntheticDataset(
        "TextureColour",
        domain="sunset",
        severity=0.8,
        seed=9014,
        base_kind=Kind(colours=_TWO_COLOURS, shapes=_FOUR_SHAPES),
        new_kind=Kind(colours=_without(COLOURS, _TWO_COLOURS), textures=_SOLID),
    ),
)
SHAPES_DATASET = SyntheticDataset("Shapes", "street", severity=1.0, seed=9001, base=60, new=60)
DATASETS: dict[str, SyntheticDataset] = {one.name: one for one in (*FAMILY, SHAPES_DATASET)}


def _shuffled(pool: Sequence[Composition], seed: int) -> list[Composition]:
    """Shuffle by raw 64-bit draws, the stream that numpy guarantees not to change."""
    keys = np.random.PCG64(seed).random_raw(len(pool)).tolist()
    return [one for _, one in sorted(zip(keys, pool, strict=True))]


def spread(pool: Sequence[Composition], count: int, seed: int) -> list[Composition]:
    """Choose `count` compositions in which every colour, texture and shape is about equally frequent."""
    left, chosen = _shuffled(pool, seed), []
    # An attribute with fewer values uses each of them more often, so its uses weigh less.
    weights = [len({one.colour for one in pool}), len({one.texture for one in pool}), len({one.shape for one in pool})]
    used: Counter[str] = Counter()
    for _ in range(count):
        best = min(
            left,
            key=lambda one: sum(
                weight * used[part] for weight, part in zip(weights, (one.colour, one.texture, one.shape), strict=True)
            ),
        )
        left.remove(best)
        chosen.append(best)
        used.update((best.colour, best.texture, best.shape))
    return chosen


@lru_cache(maxsize=32)
def _choose_classes(base_kind: Kind, base: int, new_kind: Kind, new: int, seed: int) -> tuple[Composition, ...]:
    """Return the base classes, then the new ones. The halves share no composition."""
    first = spread([one for one in compositions() if one in base_kind], base, seed)
    rest = [one for one in compositions() if one in new_kind and one not in first]
    return (*first, *spread(rest, new, seed + 1))


def write(folder: Path, names: Sequence[str] = tuple(DATASETS)) -> None:
    """Write datasets as PNG files with a split file each, in the layout of CoOp's other datasets."""
    for name in names:
        dataset = DATASETS[name]
        root = folder / dataset.folder
        split: dict[str, list[list[object]]] = {}
        for part in ("train", "val", "test"):
            split[part] = []
            for label, item in dataset.items(part):
                class_name = dataset.classes[label].name
                relative = f"{class_name.replace(' ', '_')}/{item:04d}.png"
                path = root / "images" / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(dataset.draw(label, item)).save(path)
                split[part].append([relative, label, class_name])
        (root / f"split_zhou_{name}.json").write_text(json.dumps(split))
        print(f"{name}: {sum(map(len, split.values())):,} images in {root}")
