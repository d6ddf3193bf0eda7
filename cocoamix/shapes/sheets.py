"""Contact sheets of synthetic images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from .drawing import Pixels, draw
from .sets import DATASETS, spread
from .world import DOMAINS, SIZE, compositions


@dataclass(frozen=True)
class Look:
    """The colours of a sheet."""

    mode: str
    ink: str
    background: str


LIGHT = Look("RGB", "black", "white")
# Transparent, for dark pages of any colour.
DARK = Look("RGBA", "#e6eaef", "#e6eaef00")


def contact_sheet(
    rows: Sequence[Sequence[Pixels]], labels: Sequence[str] = (), zoom: int = 3, look: Look = LIGHT
) -> Image.Image:
    """Return a sheet of enlarged images in rows, with a label at the left of each row."""
    cell, margin = SIZE * zoom + 4, 150 if labels else 0
    sheet = Image.new(look.mode, (margin + cell * max(len(row) for row in rows), cell * len(rows)), look.background)
    pen = ImageDraw.Draw(sheet)
    for i, row in enumerate(rows):
        if labels:
            pen.text((4, i * cell + cell // 2), labels[i], fill=look.ink, font=_font(24), anchor="lm")
        for j, image in enumerate(row):
            large = Image.fromarray(image).resize((SIZE * zoom, SIZE * zoom), Image.Resampling.NEAREST)
            sheet.paste(large, (margin + j * cell, i * cell))
    return sheet


def domain_sheet(columns: int = 16, seed: int = 0, zoom: int = 3, look: Look = LIGHT) -> Image.Image:
    """Draw one row of images for every domain; the columns show the same compositions."""
    chosen = spread(compositions(), columns, seed)
    rows = [[draw(one, domain, seed, item) for item, one in enumerate(chosen)] for domain in DOMAINS]
    return contact_sheet(rows, list(DOMAINS), zoom, look)


def class_sheet(dataset: str, columns: int = 10, zoom: int = 3, look: Look = LIGHT) -> Image.Image:
    """Draw one test image of each class of a dataset, with its name below, a word a line."""
    drawn = DATASETS[dataset]
    cell_width, cell_height = SIZE * zoom + 20, SIZE * zoom + 72  # the longest word and three lines fit
    rows = -(-len(drawn.classes) // columns)
    sheet = Image.new(look.mode, (columns * cell_width, rows * cell_height), look.background)
    pen = ImageDraw.Draw(sheet)
    for label, one in enumerate(drawn.classes):
        x, y = label % columns * cell_width, label // columns * cell_height
        image = Image.fromarray(drawn.draw(label, drawn.train + drawn.val))
        sheet.paste(image.resize((SIZE * zoom, SIZE * zoom), Image.Resampling.NEAREST), (x, y))
        lines = "\n".join(one.name.split())
        pen.multiline_text((x, y + SIZE * zoom + 1), lines, fill=look.ink, font=_font(19), spacing=1)
    return sheet


def _font(size: int) -> Any:
    """Return a font that can be read after a page has scaled the sheet down."""
    try:
        return ImageFont.load_default(size)
    except TypeError:  # Pillow before 10.1 has one size
        return ImageFont.load_default()
