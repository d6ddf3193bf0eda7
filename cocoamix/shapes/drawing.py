"""Drawing an image, from a generator of its own: any process may draw any image and get the same bytes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from .outlines import OUTLINES, Points
from .world import COLOURS, DOMAINS, SIZE, Composition, Domain

_NUMBERS = 160  # more than an image uses at the severities that domains with clutter are meant for
_FINE = 3  # masks are drawn this many times larger and averaged down: Pillow's polygons have hard edges

Pixels = NDArray[np.uint8]
Plane = NDArray[np.float32]


class _Dice:
    """Uniform numbers of one image. Drawn as one block, because a call per number would be slow."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._numbers: Iterator[float] = iter(generator.random(_NUMBERS).tolist())

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * next(self._numbers)

    def below(self, count: int) -> int:
        return int(count * next(self._numbers))

    def colour(self, low: float, high: float) -> tuple[float, float, float]:
        return self.between(low, high), self.between(low, high), self.between(low, high)


@lru_cache(maxsize=1)
def drawing_hash() -> str:
    """Return what changes when the way of drawing may have: a hash of the code that draws."""
    code = [Path(__file__).with_name(name).read_bytes() for name in ("world.py", "outlines.py", "drawing.py")]
    return hashlib.sha256(b"".join(code)).hexdigest()[:16]


def _generator(composition: Composition, domain: Domain, seed: int, item: int) -> np.random.Generator:
    key = [seed, item, list(DOMAINS).index(domain.name), *composition.indices]
    return np.random.Generator(np.random.PCG64(key))


def _grid() -> tuple[Plane, Plane]:
    """Return x and y of every pixel, from the middle of the image."""
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


def _add_clutter(image: NDArray[np.float32], dice: _Dice, pieces: int) -> NDArray[np.float32]:
    """Scatter lines, discs and boxes of random colours."""
    canvas = Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))
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


def _add_occluders(image: NDArray[np.float32], dice: _Dice, pieces: int) -> NDArray[np.float32]:
    """Draw thin lines from edge to edge, in front of everything."""
    canvas = Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))
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
    image = _background(dice, colour, domain.sketch)
    if domain.clutter:
        image = _add_clutter(image, dice, round(domain.clutter * severity * dice.between(0.5, 1)))
    corners = _place(OUTLINES[composition.shape], dice, domain, severity)
    pattern = _pattern(composition.texture, dice)
    mask = _mask(corners, outline=2.8 if composition.texture == "hollow" else 0.0)[..., None]
    fill: NDArray[np.float32] = colour
    if pattern is not None:
        # The rim keeps the colour, or a pattern that matches the background would eat the outline.
        pattern = pattern * (1 - _mask(corners, outline=2.0))
        fill = colour + pattern[..., None] * (_second_tone(colour) - colour)
    if domain.sketch:
        fill = _hatch(fill, image, dice)
    image = image + mask * (fill - image)
    if domain.sketch:
        image = image * (1 - np.float32(0.75) * _mask(corners, outline=0.8)[..., None])
    return image


def _hatch(fill: NDArray[np.float32], paper: NDArray[np.float32], dice: _Dice) -> NDArray[np.float32]:
    """Return `fill` as coloured pencil: paler, and paler still between the strokes."""
    cos, sin = _turn(dice.between(0.5, 1.1))
    strokes = _wave(cos * _X + sin * _Y, dice.between(2.2, 3.0), dice.between(0, 1))[..., None]
    return fill + (np.float32(0.12) + np.float32(0.4) * strokes) * (paper - fill)


def _shift(image: NDArray[np.float32], domain: Domain, severity: float) -> NDArray[np.float32]:
    """Apply what every image of a domain has in common: a colour filter and haze."""
    if min(domain.tint) < 1:
        image = image * (1 - np.float32(severity) * (1 - np.array(domain.tint, np.float32)))
    if domain.haze:
        image = image + np.float32(domain.haze * severity) * (np.float32(215) - image)
    return image


def draw(composition: Composition, domain: str, seed: int, item: int, severity: float = 1.0) -> Pixels:
    """Draw image number `item` of a composition, as (32, 32, 3) bytes."""
    style = DOMAINS[domain]
    generator = _generator(composition, style, seed, item)
    dice = _Dice(generator)
    colour = np.array([c + dice.between(-16, 16) for c in COLOURS[composition.colour]], dtype=np.float32)
    image = _paint(composition, style, dice, severity, np.clip(colour, 4, 255))
    if style.occluders:
        image = _add_occluders(image, dice, dice.below(round(style.occluders * severity) + 1))
    if style.blur:
        soft = Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))
        radius = round(style.blur * severity * dice.between(0.4, 1), 3)
        image = np.asarray(soft.filter(ImageFilter.BoxBlur(radius)), dtype=np.float32)
    light = dice.between(*style.light)
    if style.cast:
        image = image * np.array([light * dice.between(1 - style.cast * severity, 1) for _ in range(3)], np.float32)
    else:
        image = image * np.float32(light)
    image = _shift(image, style, severity)
    image = image + _noise(generator, style.noise * severity)
    return np.clip(image + np.float32(0.5), 0, 255).astype(np.uint8)
