"""The files of a figure: SVG and PNG, each in light and in dark colours, and PDF."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

from cocoamix.io.files import write_atomically

from .style import DARK, LIGHT, Figure, Palette, apply

Draw = Callable[[Palette], Figure]  # draws a figure in the colours of a palette

_DPI = 200  # of PNG files


def draw_files(stem: str, draw: Draw, title: str, pdf: bool = False) -> dict[str, bytes]:
    """Draw a figure and return the contents of its files by name.

    Args:
        stem: The name of the files without the extension. Dark ones append `-dark`.
        draw: Draws the figure in the colours of a palette.
        title: The title in the metadata of the files.
        pdf: Whether to add a PDF for print.
    """
    contents = {}
    for name, palette in ((stem, LIGHT), (f"{stem}-dark", DARK)):
        contents[f"{name}.svg"] = to_svg(draw, title, palette).encode()
        contents[f"{name}.png"] = _to_bytes(draw, palette, "png", dpi=_DPI, transparent=True, metadata={"Title": title})
    if pdf:
        metadata = {"CreationDate": None, "Title": title}
        contents[f"{stem}.pdf"] = _to_bytes(draw, LIGHT, "pdf", metadata=metadata)
    return contents


def write_files(folder: Path, contents: Mapping[str, bytes]) -> list[str]:
    """Write files into a folder and return their names."""
    for name, content in contents.items():
        write_atomically(folder / name, partial(_write, content))
    return list(contents)


def to_svg(draw: Draw, title: str, palette: Palette = LIGHT) -> str:
    """Return a figure as SVG. The same figure always gives the same text."""
    metadata = {"Date": None, "Title": title}
    return _to_bytes(draw, palette, "svg", transparent=True, metadata=metadata).decode()


def _to_bytes(draw: Draw, palette: Palette, kind: str, **options: Any) -> bytes:
    target = io.BytesIO()
    with apply(palette):
        draw(palette).savefig(target, format=kind, **options)
    return target.getvalue()


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)
