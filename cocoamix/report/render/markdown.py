"""The report as Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cocoamix.report.build import Report
from cocoamix.report.model.tables import Table

from .cells import LEGEND, plain

# Characters that are markup in Markdown. An underscore within a word is not.
_MARKUP = re.compile(r"[\\`*|<]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=\])\(|^#")


def render(report: Report) -> str:
    """Return the report as Markdown; the best of a column is bold."""
    parts = ["# Results"]
    for section in report.sections:
        parts.append(f"## {escape(section.title)}")
        for table in section.tables:
            parts += [f"### {escape(table.title)}", render_table(table)]
            parts += [escape(table.caption)] if table.caption else []
        parts += [escape(note) for note in section.notes]
    parts.append(f"{LEGEND}.")
    if report.notes or report.problems:
        parts.append("## Notes")
        listed = [*report.notes, *(f"Left out: {problem.folder}: {problem.reason}." for problem in report.problems)]
        parts.append("\n".join(f"- {escape(note)}" for note in listed))
    return "\n\n".join(parts) + "\n"


def render_table(table: Table) -> str:
    """Return a table without its title; the best of a column is bold."""
    lines = [[escape(text) for text in (table.first, *(column.title for column in table.columns))]]
    for line in table.lines:
        cells = [escape(plain(value, column)) for value, column in zip(line.values, table.columns, strict=True)]
        bold = [f"**{text}**" if value.best else text for text, value in zip(cells, line.values, strict=True)]
        label = escape(line.label)
        lines.append([f"*{label}*" if line.kind == "paper" else label, *bold])
    return layout(lines, right=True)


def layout(lines: Sequence[Sequence[str]], right: bool = False) -> str:
    """Return lines of cells as a table that also reads well on a terminal.

    Args:
        lines: The cells; the first line is the header.
        right: Whether Markdown aligns all columns but the first to the right.
    """
    widths = [max(3, *(len(line[place]) for line in lines)) for place in range(len(lines[0]))]
    texts = ["| " + " | ".join(t.ljust(w) for t, w in zip(line, widths, strict=True)) + " |" for line in lines]
    ends = ["-" * (width + 1) + (":" if right and place else "-") for place, width in enumerate(widths)]
    return "\n".join([texts[0], f"|{'|'.join(ends)}|", *texts[1:]])


def escape(text: str) -> str:
    """Escape text for Markdown, on one line."""
    return _MARKUP.sub(lambda found: "&lt;" if found[0] == "<" else f"\\{found[0]}", " ".join(text.splitlines()))
