"""The figures of a report: those of each section's task, drawn from the runs in its tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from . import pivots
from .checks import describe_caveats
from .figures import base_to_new, sessions
from .figures.style import Drawing, Style, render

if TYPE_CHECKING:
    from .report import Report
    from .sections import Section

Drawings = Mapping[str, list[Drawing]]  # by the key of the section


def draw(report: Report) -> Drawings:
    """Return the figures of each section of a report, ready to draw. Their files are named after their sections."""
    drawn = {}
    for section in report.sections:
        caveats = describe_caveats(section.part)
        drawn[section.key] = [
            replace(drawing, stem=f"{section.key}-{drawing.stem}", sentence=f"{drawing.sentence} {caveats}".strip())
            for drawing in _of_section(section)
        ]
    return drawn


def _of_section(section: Section) -> Iterator[Drawing]:
    """Yield curves over sessions or shots, or the figures of base to new."""
    if section.key.startswith("base2new"):
        yield from _base_to_new(section)
    elif section.key.startswith("fscil"):
        panels = sessions.session_panels(section.part, section.published.rows)
        yield sessions.draw_curves("sessions", panels, section.title, "session")
    elif section.key == "few-shot":
        lines = sessions.curves(pivots.few_shot(section.part.values), section.datasets)
        if lines["x"].nunique() > 1:
            yield sessions.draw_curves("shots", {"all classes": lines}, section.tables[0].title, "shots")


def _base_to_new(section: Section) -> Iterator[Drawing]:
    """Yield base against new, H against parameters, and H on each dataset, unless rows are several partitions."""
    runs = section.part.runs
    part = section.part.only(runs.index[runs["dataset"].isin(section.datasets) & (runs["subset"] != "all")])
    if part.runs.empty or runs["draw"].nunique() > 1:
        return
    yield from base_to_new.drawings(part, section.published.rows)


def to_svg(drawings: Drawings) -> dict[str, list[tuple[str, str]]]:
    """Return the titles and SVG elements of the figures of each section, for a page."""
    return {key: [(drawing.title, _svg(drawing)) for drawing in shown] for key, shown in drawings.items()}


def _svg(drawing: Drawing) -> str:
    """Return a figure as an element of a page, on which the identifiers of its parts are unique."""
    text = render(drawing.draw, Style(), drawing.title, ("svg",))["svg"].decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{drawing.stem}-", text)
