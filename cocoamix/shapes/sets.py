"""The datasets of the small world: which classes they have, in which order, and how their pictures are taken."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
from PIL import Image

from .drawing import Pixels, draw
from .world import COLOURS, SHAPES, TEXTURES, Composition, compositions

_NEW_ONLY = {"colour": 2, "texture": 1, "shape": 3}  # how many names at the end of each list of the world


@dataclass(frozen=True)
class PictureSet:
    """A dataset: its classes in label order, how its pictures are taken, and how many there are of each class."""

    name: str
    folder: str  # where CoOp's layout keeps it, below the data root
    domain: str
    severity: float
    seed: int
    base: int  # classes in the base half, which CoOp's rule makes the first ceil(n / 2) labels
    new: int
    train: int = 24
    val: int = 8
    test: int = 30

    @property
    def classes(self) -> tuple[Composition, ...]:
        return _split_classes(self.base, self.new, self.seed)

    def items(self, split: str) -> Iterator[tuple[int, int]]:
        """Yield (label, item) of every picture of `train`, `val` or `test`, class by class."""
        first = {"train": 0, "val": self.train, "test": self.train + self.val}[split]
        count = {"train": self.train, "val": self.val, "test": self.test}[split]
        yield from product(range(len(self.classes)), range(first, first + count))

    def draw(self, label: int, item: int) -> Pixels:
        """Draw one picture of the class `label`."""
        return draw(self.classes[label], self.domain, self.seed, item, self.severity)


# Seeds are far from those of pre-training, so that no picture is in both.
DATASETS: dict[str, PictureSet] = {
    one.name: one
    for one in (
        PictureSet("Shapes", "shapes", "street", severity=1.0, seed=9001, base=60, new=60),
        PictureSet("ShapesSketch", "shapes_sketch", "sketch", severity=4.0, seed=9002, base=50, new=50),
        PictureSet("ShapesNight", "shapes_night", "dark", severity=1.7, seed=9003, base=50, new=50),
    )
}


def _shuffled(pool: Sequence[Composition], seed: int) -> list[Composition]:
    """Shuffle by raw 64-bit draws, the one stream that numpy promises never to change."""
    keys = np.random.PCG64(seed).random_raw(len(pool)).tolist()
    return [one for _, one in sorted(zip(keys, pool, strict=True))]


def spread(pool: Sequence[Composition], count: int, seed: int) -> list[Composition]:
    """Choose `count` compositions in which every colour, texture and shape is about equally frequent."""
    left, chosen = _shuffled(pool, seed), []
    # A used shape counts as much as a used texture once both have come round.
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


def is_new_only(composition: Composition) -> bool:
    """Whether it has a colour, texture or shape that no base class has."""
    colour, texture, shape = composition.indices
    return (
        colour >= len(COLOURS) - _NEW_ONLY["colour"]
        or texture >= len(TEXTURES) - _NEW_ONLY["texture"]
        or shape >= len(SHAPES) - _NEW_ONLY["shape"]
    )


@lru_cache(maxsize=8)
def _split_classes(base: int, new: int, seed: int) -> tuple[Composition, ...]:
    """Return base classes, then new ones: half of the new are unseen compositions of what base classes are made of,
    the other half have a part that no base class has."""
    familiar = spread([one for one in compositions() if not is_new_only(one)], base + new // 2, seed)
    strange = spread([one for one in compositions() if is_new_only(one)], new - new // 2, seed + 1)
    # The few-shot draw walks the classes in label order; a mixed order keeps any prefix of the new half typical.
    return (*familiar[:base], *_shuffled([*familiar[base:], *strange], seed + 2))


def write(folder: Path, names: Sequence[str] = tuple(DATASETS)) -> None:
    """Write datasets as PNG files with a split file each, in the layout of CoOp's other datasets."""
    for name in names:
        pictures = DATASETS[name]
        root = folder / pictures.folder
        split: dict[str, list[list[object]]] = {}
        for part in ("train", "val", "test"):
            split[part] = []
            for label, item in pictures.items(part):
                class_name = pictures.classes[label].name
                relative = f"{class_name.replace(' ', '_')}/{item:04d}.png"
                path = root / "images" / relative
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pictures.draw(label, item)).save(path)
                split[part].append([relative, label, class_name])
        (root / f"split_zhou_{name}.json").write_text(json.dumps(split))
        print(f"{name}: {sum(map(len, split.values())):,} pictures in {root}")
