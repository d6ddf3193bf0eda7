"""Draw class activation maps: a row for each image, a column for each method, the predicted label below."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.patches import Rectangle
from PIL import Image

from cocoamix.drawing.style import LIGHT, Figure, Palette, apply

from .class_maps import Map, Maps
from .explained import Array

_HEAT = "inferno"  # brighter means higher, also in print without colours
_SHARE = 0.6  # of the map in the blend; the rest is the image in grey
_LUMINANCE = (0.299, 0.587, 0.114)
_FEWEST = 224  # pixels per side; smaller images are enlarged
_LETTERS, _LINES = 19, 3  # characters per line of a label, and lines
_RIGHT, _WRONG = "\u2713", "\u2717"
_RIGHT_HUE, _WRONG_HUE = 2, 4  # green and red; a tick and a cross show the same
# Inches:
_CELL, _TEXT, _MARGIN, _TOP, _BOTTOM = 1.3, 0.55, 0.3, 0.45, 0.6


def draw(found: Maps, palette: Palette = LIGHT) -> Figure:
    """Return the figure of images and maps."""
    rows, columns = len(found.images), 1 + len(found.methods)
    with apply(palette):
        size = (_MARGIN + columns * (_CELL + 0.1), _TOP + rows * (_CELL + _TEXT) + _BOTTOM)
        figure = Figure(figsize=size)
        for row, image in enumerate(found.images):
            for column in range(columns):
                left = _MARGIN + column * (_CELL + 0.1)
                below = _BOTTOM + (rows - 1 - row) * (_CELL + _TEXT) + _TEXT
                place = (left / size[0], below / size[1], _CELL / size[0], _CELL / size[1])
                axes = figure.add_axes(place)
                axes.set_axis_off()
                if not column:
                    _draw_image(axes, found.pixels[row], image.label or Path(image.name).name, image.part, palette)
                else:
                    _draw_map(axes, found.pixels[row], found.maps[row][column - 1], palette)
                if not row:
                    title = ("image", *found.methods)[column]
                    axes.set_title("\n".join(_shorten(title, 17)), loc="center", fontsize=9.5, pad=5)
        _add_scale(figure, size, columns, palette)
    return figure


def _draw_image(axes: Any, pixels: Array, name: str, part: str, palette: Palette) -> None:
    axes.imshow(_enlarge(pixels), interpolation="none")
    _write(axes, "\n".join(_shorten(name, _LETTERS)), palette.ink)
    if part:
        axes.text(-0.05, 0.5, part, rotation=90, ha="right", va="center", transform=axes.transAxes, color=palette.muted)


def _draw_map(axes: Any, pixels: Array, one: Map, palette: Palette) -> None:
    axes.imshow(overlay(pixels, one.values), interpolation="none")
    mark, colour = "", palette.ink
    if one.right is not None:
        mark = f"{_RIGHT if one.right else _WRONG} "
        colour = palette.hue(_RIGHT_HUE if one.right else _WRONG_HUE)
        frame = {"transform": axes.transAxes, "fill": False, "clip_on": False, "linewidth": 2}
        axes.add_patch(
            Rectangle((0, 0), 1, 1, edgecolor=colour, linestyle="-" if one.right else (0, (3, 1.5)), **frame)
        )
    lines = _shorten(f"{mark}{one.predicted}", _LETTERS)
    _write(axes, "\n".join([*lines, f"{100 * one.probability:.0f} %"]), colour)


def _write(axes: Any, text: str, colour: str) -> None:
    axes.text(0.5, -0.05, text, ha="center", va="top", transform=axes.transAxes, color=colour, fontsize=8)


def _shorten(text: str, letters: int) -> list[str]:
    lines = textwrap.wrap(text, letters)
    return lines if len(lines) < _LINES else [lines[0], f"{lines[1][: letters - 3]}..."]


def overlay(pixels: Array, values: Array) -> Array:
    """Return the (H, W, 3) image in grey with a map over it."""
    image = _enlarge(pixels)
    height, width = image.shape[:2]
    smooth = np.asarray(Image.fromarray(values).resize((width, height), Image.Resampling.BILINEAR))
    heat = matplotlib.colormaps[_HEAT](np.clip(smooth, 0, 1))[..., :3]
    grey = (image @ np.asarray(_LUMINANCE, np.float32))[..., None]
    mixed: Array = (_SHARE * heat + (1 - _SHARE) * grey).astype(np.float32)
    return mixed


def _enlarge(pixels: Array) -> Array:
    """Enlarge a small image by repeating its pixels, so that the map over it is smooth."""
    times = -(-_FEWEST // pixels.shape[0])
    larger: Array = pixels.repeat(times, axis=0).repeat(times, axis=1)
    return larger


def _add_scale(figure: Figure, size: tuple[float, float], columns: int, palette: Palette) -> None:
    """Add the colour bar."""
    width = min(2.2, size[0] - 1)
    axes = figure.add_axes(((size[0] - width) / 2 / size[0], 0.34 / size[1], width / size[0], 0.09 / size[1]))
    bar = figure.colorbar(ScalarMappable(cmap=_HEAT), cax=axes, orientation="horizontal", ticks=[0, 1])
    bar.ax.set_xticklabels(["0", "highest of the map"], fontsize=8, color=palette.muted)
    bar.outline.set_visible(False)
