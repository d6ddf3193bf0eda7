"""A figure with its data and its sentence, and the files of all three."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cocoamix.io.files import write_text
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
    """Write SVG and PNG in light and dark, the data as CSV and the sentence; return the names of the files."""
    from cocoamix.drawing.files import write_figure  # matplotlib takes a second to import

    names = [f"{drawn.stem}.csv", f"{drawn.stem}.txt"]
    write_text(folder / names[0], to_csv(drawn.columns, drawn.rows))
    write_text(folder / names[1], f"{drawn.sentence}\n")
    return names + write_figure(folder, drawn.stem, drawn.draw, drawn.title)


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV that a spreadsheet shows as it is."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([text_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return target.getvalue()
