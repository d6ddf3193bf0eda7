"""A figure with its data and its sentence, and the files of all three."""

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
    """A figure that can be drawn.

    Attributes:
        stem: Name of its files, without an ending.
        title: What it is.
        sentence: What it shows.
        draw: Draws it in the colours of a palette.
        columns: Names of the columns of its data.
        rows: The data.
    """

    stem: str
    title: str
    sentence: str
    draw: Callable[[Palette], Figure]
    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]


def save(drawn: Drawn, folder: Path) -> list[str]:
    """Write SVG and PNG in light and dark, the data as CSV and the sentence; return the names of the files.

    Everything is drawn before the first file is written, so that a figure that fails leaves no file.
    """
    from cocoamix.drawing.files import draw_files, write_files  # matplotlib takes a second to import

    contents = {
        f"{drawn.stem}.csv": to_csv(drawn.columns, drawn.rows).encode(),
        f"{drawn.stem}.txt": f"{drawn.sentence}\n".encode(),
    }
    return write_files(folder, contents | draw_files(drawn.stem, drawn.draw, drawn.title))


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV that a spreadsheet shows as it is."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([text_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return target.getvalue()
