"""A small world of pictures: one coloured, textured shape each, 32 px, drawn from a seed.

It stands in for photographs where none can be downloaded. A picture is a function of
(seed, item, composition, domain, severity) and of nothing else: each has a random generator of its own,
so any process may draw any picture, in any order, and get the same bytes.

    python -m cocoamix.shapes sheet FILE.png     a contact sheet of every domain
    python -m cocoamix.shapes write DIR          every dataset as PNG files, in CoOp's layout
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

SIZE = 32
_FINE = 3  # masks are drawn this many times larger and averaged down: Pillow's polygons have hard edges

Pixels = NDArray[np.uint8]
Plane = NDArray[np.float32]
Points = tuple[tuple[float, float], ...]

# The last names of each list appear in no base class of any dataset here: see `_split_classes`.
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 38, 40),
    "orange": (247, 138, 24),
    "yellow": (243, 220, 46),
    "green": (48, 158, 62),
    "blue": (38, 78, 205),
    "purple": (132, 54, 168),
    "pink": (246, 140, 190),
    "white": (245, 245, 245),
    "black": (22, 22, 24),
    "gray": (128, 128, 130),
    "cyan": (46, 205, 214),
    "brown": (120, 72, 34),
}
TEXTURES = ("plain", "striped", "checkered", "hollow", "dotted")
SHAPES = (
    *("circle", "square", "triangle", "diamond", "star", "cross", "heart", "arrow"),
    *("house", "tree", "fish", "crown", "drop", "moon", "flower", "bolt"),
)
_NEW_ONLY = {"colour": 2, "texture": 1, "shape": 3}  # how many names at the end of each list


# ---------------------------------------------------------------- what there is to draw


@dataclass(frozen=True, order=True)
class Composition:
    """What a picture shows."""

    colour: str
    texture: str
    shape: str

    @property
    def name(self) -> str:
        """The class name, such as "red striped star"."""
        return f"{self.colour} {self.texture} {self.shape}"

    @property
    def indices(self) -> tuple[int, int, int]:
        return list(COLOURS).index(self.colour), TEXTURES.index(self.texture), SHAPES.index(self.shape)

    @property
    def held_out(self) -> bool:
        """Whether pre-training never sees it.

        One texture of every pair of colour and shape, so that each colour, texture, shape and pair of them
        is known and only the whole is new.
        """
        colour, texture, shape = self.indices
        return (2 * colour + 3 * texture + shape) % len(TEXTURES) == 0

    @classmethod
    def parse(cls, name: str) -> Composition:
        """Read a class name back."""
        colour, texture, shape = name.split()
        return cls(colour, texture, shape)


@lru_cache(maxsize=1)
def compositions() -> tuple[Composition, ...]:
    """Return every composition of the world."""
    return tuple(Composition(*parts) for parts in product(COLOURS, TEXTURES, SHAPES))


@dataclass(frozen=True)
class Domain:
    """How a picture is taken, at severity 1. Severity scales what disturbs and leaves style alone."""

    name: str
    radius: tuple[float, float] = (11.0, 13.5)  # of the shape, in pixels
    shift: float = 1.5  # of its centre, in pixels
    tilt: float = 4.0  # degrees
    clutter: int = 0  # pieces behind the shape
    occluders: int = 0  # thin pieces in front of it
    noise: float = 2.0  # standard deviation in grey levels
    blur: float = 0.0  # radius in pixels
    cast: float = 0.0  # share by which a channel may be weakened
    light: tuple[float, float] = (0.95, 1.05)  # brightness
    sketch: bool = False


DOMAINS: dict[str, Domain] = {
    domain.name: domain
    for domain in (
        Domain("clean"),
        Domain("cluttered", radius=(9.5, 12.5), shift=3, tilt=8, clutter=9, noise=5),
        Domain("noisy", radius=(10, 13), shift=2, tilt=6, noise=38),
        Domain("blurry", radius=(10, 13), shift=2, tilt=6, noise=3, blur=2.0),
        Domain("tinted", radius=(10, 13), shift=2, tilt=6, noise=4, cast=0.55, light=(0.8, 1.15)),
        Domain("tilted", radius=(9.5, 12.5), shift=2.5, tilt=28, noise=4),
        Domain("sketch", radius=(10, 13.5), shift=2, tilt=8, noise=6, sketch=True),
        Domain("dark", radius=(10, 13), shift=2, tilt=8, noise=8, cast=0.15, light=(0.22, 0.45)),
        Domain(
            "street",
            radius=(9.5, 12.5),
            shift=3,
            tilt=18,
            clutter=8,
            occluders=2,
            noise=15,
            blur=0.9,
            cast=0.35,
            light=(0.6, 1.2),
        ),
    )
}


# ---------------------------------------------------------------- outlines, in a unit disc, y downwards


def _ellipse(width: float, height: float, steps: int = 28, x: float = 0.0, y: float = 0.0) -> Points:
    angles = (2 * math.pi * step / steps for step in range(steps))
    return tuple((x + width * math.cos(angle), y + height * math.sin(angle)) for angle in angles)


def _star(points: int, inner: float) -> Points:
    radii = (1.0, inner)
    angles = [math.pi * step / points - math.pi / 2 for step in range(2 * points)]
    return tuple((radii[i % 2] * math.cos(a), radii[i % 2] * math.sin(a)) for i, a in enumerate(angles))


def _heart() -> Points:
    points = []
    for step in range(30):
        t = 2 * math.pi * step / 30
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 16.5, -(y + 2) / 15))
    return tuple(points)


def _drop() -> Points:
    bow = [(math.cos(a), math.sin(a)) for a in (math.pi * (-0.12 + 1.24 * step / 16) for step in range(17))]
    return ((0.0, -1.0), *((0.66 * x, 0.34 + 0.66 * y) for x, y in bow))


def _moon() -> Points:
    outer = [math.pi * (0.28 + 1.44 * step / 20) for step in range(21)]
    inner = [math.pi * (1.62 - 1.24 * step / 16) for step in range(17)]
    return (
        *((0.2 + math.cos(a), math.sin(a)) for a in outer),
        *((0.62 + 0.78 * math.cos(a), 0.78 * math.sin(a)) for a in inner),
    )


def _flower() -> Points:
    points = []
    for step in range(50):
        angle = 2 * math.pi * step / 50
        radius = 0.66 + 0.34 * math.cos(5 * angle)
        points.append((radius * math.sin(angle), -radius * math.cos(angle)))
    return tuple(points)


def _fish() -> Points:
    body = _ellipse(0.68, 0.55, x=-0.3)
    # The body runs from its right end round to its right end; the tail closes the gap.
    return (*body[2:-1], (0.2, -0.22), (1.0, -0.62), (0.8, 0.0), (1.0, 0.62), (0.2, 0.22))


_OUTLINES: dict[str, Points] = {
    "circle": _ellipse(0.92, 0.92),
    "square": ((-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)),
    "triangle": ((0, -0.95), (1.0, 0.8), (-1.0, 0.8)),
    "diamond": ((0, -1.05), (0.64, 0), (0, 1.05), (-0.64, 0)),
    "star": _star(5, 0.42),
    "cross": (
        *((-0.34, -1.0), (0.34, -1.0), (0.34, -0.34), (1.0, -0.34), (1.0, 0.34), (0.34, 0.34)),
        *((0.34, 1.0), (-0.34, 1.0), (-0.34, 0.34), (-1.0, 0.34), (-1.0, -0.34), (-0.34, -0.34)),
    ),
    "heart": _heart(),
    "arrow": ((-1.0, -0.3), (0.1, -0.3), (0.1, -0.85), (1.0, 0), (0.1, 0.85), (0.1, 0.3), (-1.0, 0.3)),
    "house": ((0, -1.0), (1.0, -0.15), (0.72, -0.15), (0.72, 0.9), (-0.72, 0.9), (-0.72, -0.15), (-1.0, -0.15)),
    "tree": (
        *((0, -1.05), (0.55, -0.3), (0.32, -0.3), (0.85, 0.5), (0.2, 0.5), (0.2, 1.0)),
        *((-0.2, 1.0), (-0.2, 0.5), (-0.85, 0.5), (-0.32, -0.3), (-0.55, -0.3)),
    ),
    "fish": _fish(),
    "crown": ((-1.0, -0.75), (-0.5, -0.05), (0, -0.95), (0.5, -0.05), (1.0, -0.75), (0.85, 0.8), (-0.85, 0.8)),
    "drop": _drop(),
    "moon": _moon(),
    "flower": _flower(),
    "bolt": ((0.3, -1.05), (-0.7, 0.2), (-0.08, 0.2), (-0.35, 1.05), (0.7, -0.3), (0.1, -0.3), (0.62, -1.05)),
}


# ---------------------------------------------------------------- drawing


class _Dice:
    """Uniform numbers of one picture. Drawn as one block, because a call per number would be slow."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._numbers: Iterator[float] = iter(generator.random(160).tolist())

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * next(self._numbers)

    def below(self, count: int) -> int:
        return int(count * next(self._numbers))

    def colour(self, low: float, high: float) -> tuple[float, float, float]:
        return self.between(low, high), self.between(low, high), self.between(low, high)


def _generator(composition: Composition, domain: Domain, seed: int, item: int) -> np.random.Generator:
    key = [seed, item, list(DOMAINS).index(domain.name), *composition.indices]
    return np.random.Generator(np.random.PCG64(key))


def _grid() -> tuple[Plane, Plane]:
    """Return x and y of every pixel, from the middle of the picture."""
    y, x = np.mgrid[:SIZE, :SIZE].astype(np.float32) - np.float32((SIZE - 1) / 2)
    return x, y


_X, _Y = _grid()


def _turn(angle: float) -> tuple[float, float]:
    """Return cosine and sine, rounded so that the last bit of a platform's libm cannot matter."""
    return round(math.cos(angle), 6), round(math.sin(angle), 6)


def _place(points: Points, dice: _Dice, domain: Domain, severity: float) -> list[tuple[float, float]]:
    """Scale, tilt and shift an outline into the fine canvas."""
    radius = dice.between(*domain.radius) * _FINE
    tilt = math.radians(dice.between(-domain.tilt, domain.tilt) * severity)
    cos, sin = _turn(tilt)
    x0 = (SIZE / 2 + dice.between(-domain.shift, domain.shift)) * _FINE
    y0 = (SIZE / 2 + dice.between(-domain.shift, domain.shift)) * _FINE
    return [
        (round(x0 + radius * (cos * x - sin * y), 3), round(y0 + radius * (sin * x + cos * y), 3)) for x, y in points
    ]


def _mask(corners: Sequence[tuple[float, float]], outline: float = 0.0) -> Plane:
    """Return how much of each pixel the shape covers: all of it, or a line of `outline` pixels along its edge."""
    canvas = Image.new("L", (SIZE * _FINE, SIZE * _FINE))
    pen = ImageDraw.Draw(canvas)
    if outline:
        pen.line([*corners, *corners[:2]], fill=255, width=round(outline * _FINE), joint="curve")
    else:
        pen.polygon(corners, fill=255)
    return np.asarray(canvas.reduce(_FINE), dtype=np.float32) / np.float32(255)


def _wave(along: Plane, period: float, phase: float) -> Plane:
    """Return a square wave with edges one pixel soft, 0 to 1."""
    saw = np.mod(along / period + phase, 1)
    return np.clip((0.25 - np.abs(saw - 0.5)) * period + 0.5, 0, 1)


def _pattern(texture: str, dice: _Dice) -> Plane | None:
    """Return where the second tone of a texture lies, or None where there is none."""
    if texture in ("plain", "hollow"):
        return None
    cos, sin = _turn(dice.between(-0.45, 0.45))
    across, down = cos * _X + sin * _Y, cos * _Y - sin * _X
    if texture == "striped":
        if dice.below(2):
            across, down = down, across
        return _wave(across, dice.between(5.0, 6.5), dice.between(0, 1))
    if texture == "checkered":
        period = dice.between(8.5, 10.5)
        first = _wave(across, period, dice.between(0, 1))
        second = _wave(down, period, dice.between(0, 1))
        return first + second - 2 * first * second
    period = dice.between(5.6, 6.8)  # dots
    u = np.mod(across / period + dice.between(0, 1), 1) - 0.5
    v = np.mod(down / period + dice.between(0, 1), 1) - 0.5
    return np.clip((0.085 - u * u - v * v) * 12 + 0.5, 0, 1)


def _second_tone(colour: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return what a pattern is drawn with: a dark shade of a light colour, a light tint of a dark one."""
    if colour @ np.array([0.3, 0.59, 0.11], dtype=np.float32) > 100:
        return colour * np.float32(0.28)
    return colour + (255 - colour) * np.float32(0.75)


def _background(dice: _Dice, colour: NDArray[np.float32], sketch: bool) -> NDArray[np.float32]:
    """Return a soft gradient, unlike `colour`: the further of two candidates."""
    if sketch:
        grey = dice.between(186, 214)
        base = np.array([grey + 8, grey, grey - 16], dtype=np.float32)
    else:
        greys = (dice.between(40, 100), dice.between(155, 212))
        pair = [np.array([g + dice.between(-28, 28) for _ in range(3)], dtype=np.float32) for g in greys]
        base = max(pair, key=lambda one: float(np.abs(one - colour).sum()))
    slope = dice.between(-0.7, 0.7) * _X + dice.between(-0.7, 0.7) * _Y
    return base + slope[..., None]


def _add_clutter(picture: NDArray[np.float32], dice: _Dice, pieces: int) -> NDArray[np.float32]:
    """Scatter lines, discs and boxes of random colours."""
    canvas = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(canvas)
    for _ in range(pieces):
        tone = tuple(int(value) for value in dice.colour(20, 235))
        x, y = dice.between(-2, SIZE + 2), dice.between(-2, SIZE + 2)
        kind = dice.below(3)
        if kind == 0:
            end = (x + dice.between(-22, 22), y + dice.between(-22, 22))
            pen.line([(x, y), end], fill=tone, width=1 + dice.below(2))
        else:
            box = (x, y, x + dice.between(2, 7), y + dice.between(2, 7))
            (pen.ellipse if kind == 1 else pen.rectangle)(box, fill=tone)
    return np.asarray(canvas, dtype=np.float32)


def _add_occluders(picture: NDArray[np.float32], dice: _Dice, pieces: int) -> NDArray[np.float32]:
    """Draw thin lines from edge to edge, in front of everything."""
    canvas = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(canvas)
    for _ in range(pieces):
        tone = tuple(int(value) for value in dice.colour(20, 235))
        start, end = dice.between(0, SIZE), dice.between(0, SIZE)
        line = [(0, start), (SIZE, end)] if dice.below(2) else [(start, 0), (end, SIZE)]
        pen.line(line, fill=tone, width=1)
    return np.asarray(canvas, dtype=np.float32)


def _noise(generator: np.random.Generator, deviation: float) -> NDArray[np.float32]:
    """Return bell-shaped noise: a sum of four random bytes, which is quick and the same on every platform."""
    rolls = np.frombuffer(generator.bytes(4 * SIZE * SIZE * 3), dtype=np.uint8).reshape(4, SIZE, SIZE, 3)
    total = rolls.sum(axis=0, dtype=np.int16).astype(np.float32) - np.float32(510)
    return total * np.float32(deviation / 147.8)  # the deviation of such a sum


def _paint(
    composition: Composition, domain: Domain, dice: _Dice, severity: float, colour: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the scene before the camera: background, clutter and shape."""
    picture = _background(dice, colour, domain.sketch)
    if domain.clutter:
        picture = _add_clutter(picture, dice, round(domain.clutter * severity * dice.between(0.5, 1)))
    corners = _place(_OUTLINES[composition.shape], dice, domain, severity)
    pattern = _pattern(composition.texture, dice)
    mask = _mask(corners, outline=2.8 if composition.texture == "hollow" else 0.0)[..., None]
    fill: NDArray[np.float32] = colour
    if pattern is not None:
        # The rim keeps the colour, or a pattern that matches the background would eat the outline.
        pattern = pattern * (1 - _mask(corners, outline=2.0))
        fill = colour + pattern[..., None] * (_second_tone(colour) - colour)
    if domain.sketch:
        fill = _hatch(fill, picture, dice)
    picture = picture + mask * (fill - picture)
    if domain.sketch:
        picture = picture * (1 - np.float32(0.75) * _mask(corners, outline=0.8)[..., None])
    return picture


def _hatch(fill: NDArray[np.float32], paper: NDArray[np.float32], dice: _Dice) -> NDArray[np.float32]:
    """Return `fill` as coloured pencil: paler, and paler still between the strokes."""
    cos, sin = _turn(dice.between(0.5, 1.1))
    strokes = _wave(cos * _X + sin * _Y, dice.between(2.2, 3.0), dice.between(0, 1))[..., None]
    return fill + (np.float32(0.12) + np.float32(0.4) * strokes) * (paper - fill)


def draw(composition: Composition, domain: str, seed: int, item: int, severity: float = 1.0) -> Pixels:
    """Draw picture number `item` of a composition, as (32, 32, 3) bytes."""
    style = DOMAINS[domain]
    generator = _generator(composition, style, seed, item)
    dice = _Dice(generator)
    colour = np.array([c + dice.between(-16, 16) for c in COLOURS[composition.colour]], dtype=np.float32)
    picture = _paint(composition, style, dice, severity, np.clip(colour, 4, 255))
    if style.occluders:
        picture = _add_occluders(picture, dice, dice.below(round(style.occluders * severity) + 1))
    if style.blur:
        soft = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
        radius = round(style.blur * severity * dice.between(0.4, 1), 3)
        picture = np.asarray(soft.filter(ImageFilter.BoxBlur(radius)), dtype=np.float32)
    light = dice.between(*style.light)
    if style.cast:
        picture = picture * np.array([light * dice.between(1 - style.cast * severity, 1) for _ in range(3)], np.float32)
    else:
        picture = picture * np.float32(light)
    picture = picture + _noise(generator, style.noise * severity)
    return np.clip(picture + np.float32(0.5), 0, 255).astype(np.uint8)


# ---------------------------------------------------------------- contact sheets


def contact_sheet(rows: Sequence[Sequence[Pixels]], labels: Sequence[str] = (), zoom: int = 3) -> Image.Image:
    """Lay pictures out in rows, enlarged, with a label at the left of each row."""
    cell, margin = SIZE * zoom + 4, 150 if labels else 0
    sheet = Image.new("RGB", (margin + cell * max(len(row) for row in rows), cell * len(rows)), "white")
    pen = ImageDraw.Draw(sheet)
    for i, row in enumerate(rows):
        if labels:
            pen.text((4, i * cell + cell // 2 - 5), labels[i], fill="black")
        for j, picture in enumerate(row):
            large = Image.fromarray(picture).resize((SIZE * zoom, SIZE * zoom), Image.Resampling.NEAREST)
            sheet.paste(large, (margin + j * cell, i * cell))
    return sheet


def domain_sheet(columns: int = 16, seed: int = 0, zoom: int = 3) -> Image.Image:
    """Draw one row of pictures for every domain; the columns show the same compositions."""
    chosen = _spread(compositions(), columns, seed)
    rows = [[draw(one, domain, seed, item) for item, one in enumerate(chosen)] for domain in DOMAINS]
    return contact_sheet(rows, list(DOMAINS), zoom)


# ---------------------------------------------------------------- datasets


@dataclass(frozen=True)
class PictureSet:
    """A dataset: its classes in label order, how its pictures are taken, and how many there are of each class."""

    name: str
    domain: str
    severity: float
    seed: int
    base: int  # classes in the base half, which CoOp's rule makes the first ceil(n / 2) labels
    new: int
    train: int = 24
    val: int = 8
    test: int = 30

    @property
    def folder(self) -> str:
        """Where CoOp's layout keeps it, below the data root."""
        return {"Shapes": "shapes", "ShapesSketch": "shapes_sketch", "ShapesNight": "shapes_night"}[self.name]

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
        PictureSet("Shapes", "street", severity=1.0, seed=9001, base=60, new=60),
        PictureSet("ShapesSketch", "sketch", severity=1.0, seed=9002, base=50, new=50),
        PictureSet("ShapesNight", "dark", severity=1.0, seed=9003, base=50, new=50),
    )
}


def _shuffled(pool: Sequence[Composition], seed: int) -> list[Composition]:
    """Shuffle by raw 64-bit draws, the one stream that numpy promises never to change."""
    keys = np.random.PCG64(seed).random_raw(len(pool)).tolist()
    return [one for _, one in sorted(zip(keys, pool, strict=True))]


def _spread(pool: Sequence[Composition], count: int, seed: int) -> list[Composition]:
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
    familiar = _spread([one for one in compositions() if not is_new_only(one)], base + new // 2, seed)
    strange = _spread([one for one in compositions() if is_new_only(one)], new - new // 2, seed + 1)
    # The few-shot draw walks the classes in label order; a mixed order keeps any prefix of the new half typical.
    return (*familiar[:base], *_shuffled([*familiar[base:], *strange], seed + 2))


def class_sheet(dataset: str = "Shapes", columns: int = 12, zoom: int = 3) -> Image.Image:
    """Draw one test picture of each class of a dataset, with its name below."""
    pictures = DATASETS[dataset]
    cell_width, cell_height = SIZE * zoom + 28, SIZE * zoom + 18
    rows = -(-len(pictures.classes) // columns)
    sheet = Image.new("RGB", (columns * cell_width, rows * cell_height), "white")
    pen = ImageDraw.Draw(sheet)
    for label, one in enumerate(pictures.classes):
        x, y = label % columns * cell_width, label // columns * cell_height
        picture = Image.fromarray(pictures.draw(label, pictures.train + pictures.val))
        sheet.paste(picture.resize((SIZE * zoom, SIZE * zoom), Image.Resampling.NEAREST), (x, y))
        pen.text((x, y + SIZE * zoom + 1), one.name, fill="black")
    return sheet


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m cocoamix.shapes", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    sheet = commands.add_parser("sheet", help="draw a contact sheet of every domain, or of the classes of a dataset")
    sheet.add_argument("file", type=Path)
    sheet.add_argument("--dataset", choices=DATASETS, help="draw the classes of this dataset instead")
    writer = commands.add_parser("write", help="write the datasets as PNG files in CoOp's layout")
    writer.add_argument("folder", type=Path)
    writer.add_argument("--dataset", choices=DATASETS, action="append", help="only this one; may be repeated")
    chosen = parser.parse_args(arguments)
    if chosen.command == "sheet":
        picture = class_sheet(chosen.dataset) if chosen.dataset else domain_sheet()
        picture.save(chosen.file)
    else:
        write(chosen.folder, chosen.dataset or tuple(DATASETS))


if __name__ == "__main__":
    main()
