"""The report on a terminal."""

from __future__ import annotations

from cocoamix.report.build import Report
from cocoamix.report.model.tables import Section, Table

from .cells import LEGEND, plain

_BOLD, _FAINT, _END = "\033[1m", "\033[2m", "\033[0m"


def render(report: Report, width: int = 100, colour: bool = False) -> str:
    """Return the tables as text. Without colour, a star marks the best of a column."""
    parts = [_section(section, width, colour) for section in report.sections]
    stars = any(v.best for s in report.sections for t in s.tables for line in t.lines for v in line.values)
    parts.append(LEGEND + ("; * marks the best of a column." if stars and not colour else "."))
    if report.notes:
        parts.append("\n".join(["Notes:", *(f"  {note}" for note in report.notes)]))
    return "\n\n".join(parts) + "\n"


def problems(report: Report) -> str:
    """Return the list of runs that were left out, for the error stream."""
    words = {"broken": "cannot be read", "unfinished": "not finished", "duplicate": "duplicates"}
    lines = []
    for kind, title in words.items():
        found = [problem for problem in report.problems if problem.kind == kind]
        if found:
            lines.append(f"Left out, {title} ({len(found)}):")
            lines += [f"  {problem.folder}: {problem.reason}" for problem in found[:20]]
            lines += [f"  and {len(found) - 20} more"] if len(found) > 20 else []
    return "\n".join(lines)


def _section(section: Section, width: int, colour: bool) -> str:
    title = f"{_BOLD}{section.title}{_END}" if colour else section.title
    parts = [f"{title}\n{'=' * len(section.title)}"]
    parts += [_table(table, width, colour) for table in section.tables]
    parts += section.notes
    return "\n\n".join(parts)


def _table(table: Table, width: int, colour: bool) -> str:
    """Return a table. If it is wider than the terminal, the other columns follow below, with the labels repeated."""
    cells = [[plain(v, c) for v, c in zip(line.values, table.columns, strict=True)] for line in table.lines]
    if not colour:
        for texts, line in zip(cells, table.lines, strict=True):
            texts[:] = [text + ("*" if v.best else " ") for text, v in zip(texts, line.values, strict=True)]
    first = max([len(table.first), *(len(line.label) for line in table.lines)])
    widths = [
        max([len(column.title), *(len(row[place]) for row in cells)]) for place, column in enumerate(table.columns)
    ]
    blocks: list[list[int]] = [[]]
    used = first
    for place, size in enumerate(widths):
        if blocks[-1] and used + 2 + size > width:
            blocks.append([])
            used = first
        blocks[-1].append(place)
        used += 2 + size
    printed = [table.title]
    for block in blocks:
        head = [table.first.ljust(first), *(table.columns[place].title.rjust(widths[place]) for place in block)]
        printed.append("  ".join(head).rstrip())
        printed.append("-" * (first + sum(2 + widths[place] for place in block)))
        for line, texts in zip(table.lines, cells, strict=True):
            shown = [line.label.ljust(first)]
            for place in block:
                text = texts[place].rjust(widths[place])
                shown.append(f"{_BOLD}{text}{_END}" if colour and line.values[place].best else text)
            row = "  ".join(shown).rstrip()
            printed.append(f"{_FAINT}{row}{_END}" if colour and line.kind == "paper" else row)
        printed.append("")
    return "\n".join(printed).rstrip()
