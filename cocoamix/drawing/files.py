"""The files of a figure: SVG and PNG, each in light and in dark colours."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

from cocoamix.io.files import write_atomically, write_text

from .style import DARK, LIGHT, Figure, Palette, apply

Draw = Callable[[Palette], Figure]  # draws a figure in the colours of a palette

_DPI = 200  # of PNG files


def write_figure(folder: Path, stem: str, draw: Draw, title: str, pdf: bool = False) -> list[str]:
    """Write the files of a figure and return their names.

    Args:
        folder: Where they go.
        stem: Their name without an ending. Dark ones have `-dark` behind it.
        draw: Draws the figure in the colours of a palette.
        title: What the files call themselves.
        pdf: Whether a PDF for print is written, too.
    """
    names = []
    for name, palette in ((stem, LIGHT), (f"{stem}-dark", DARK)):
        names += [f"{name}.svg", f"{name}.png"]
        write_text(folder / names[-2], to_svg(draw, title, palette))
        write_atomically(folder / names[-1], partial(_save_png, draw, title, palette))
    if pdf:
        names.append(f"{stem}.pdf")
        write_atomically(folder / names[-1], partial(_save_pdf, draw, title))
    return names


def to_svg(draw: Draw, title: str, palette: Palette = LIGHT) -> str:
    """Return a figure as SVG. The same figure gives the same text."""
    target = io.StringIO()
    with apply(palette):
        draw(palette).savefig(target, format="svg", transparent=True, metadata={"Date": None, "Title": title})
    return target.getvalue()


def _save_png(draw: Draw, title: str, palette: Palette, file: IO[bytes]) -> None:
    with apply(palette):
        draw(palette).savefig(file, format="png", dpi=_DPI, transparent=True, metadata={"Title": title})


def _save_pdf(draw: Draw, title: str, file: IO[bytes]) -> None:
    with apply(LIGHT):
        draw(LIGHT).savefig(file, format="pdf", metadata={"CreationDate": None, "Title": title})
