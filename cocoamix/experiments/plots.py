"""The figures of a report: of each section, those that its measures allow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .figures.style import Drawing, Style, render, save

if TYPE_CHECKING:
    from .report import Report

Drawings = dict[str, list[Drawing]]  # by the key of the section


def draw(report: Report) -> Drawings:
    """Return the figures of a report, ready to draw."""
    return {section.key: [] for section in report.sections}


def write(drawings: Mapping[str, list[Drawing]], folder: Path) -> list[str]:
    """Write the files of all figures; return their names."""
    return [name for shown in drawings.values() for drawing in shown for name in save(drawing, folder, Style())]


def to_svg(drawings: Mapping[str, list[Drawing]]) -> dict[str, list[tuple[str, str]]]:
    """Return the titles and SVG files of the figures of each section, for a page."""
    return {
        key: [
            (drawing.title, render(drawing.draw, Style(), drawing.title, ("svg",))["svg"].decode()) for drawing in shown
        ]
        for key, shown in drawings.items()
    }
