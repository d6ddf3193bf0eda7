"""A figure with its data and a sentence about it, and the files of all three."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cocoamix.io.spreadsheets import text_cell

if TYPE_CHECKING:
    from cocoamix.drawing.style import Figure, Palette


@dataclass(frozen=True)
class Drawn:
    """A figure that is ready to be drawn.

    Attributes:
        stem: The name of its files, without the extension.
        title: The title.
        sentence: What the figure shows, with the main numbers.
        draw: Draws it in the colours of a palette.
        columns: The names of the columns of its data.
        rows: The data.
    """

    stem: str
    title: str
    sentence: str
    draw: Callable[[Palette], Figure]
    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]


def save(drawn: Drawn, folder: Path) -> list[str]:
    """Write the figure as SVG and PNG in light and dark, its data as CSV and its sentence; return the file names.

    Everything is drawn before the first file is written, so that a figure that fails leaves no file.
    """
    from cocoamix.drawing.files import draw_files, write_files  # matplotlib takes a second to import

    contents = {
        f"{drawn.stem}.csv": to_csv(drawn.columns, drawn.rows).encode(),
        f"{drawn.stem}.txt": f"{drawn.sentence}\n".encode(),
    }
    return write_files(folder, contents | draw_files(drawn.stem, drawn.draw, drawn.title))


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV. Texts are escaped so that no spreadsheet takes them for formulas."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([text_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return target.getvalue()
