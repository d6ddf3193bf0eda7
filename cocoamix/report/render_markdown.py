"""The report as Markdown."""

from __future__ import annotations

from .build import Report
from .cells import LEGEND, plain
from .tables import Table


def render(report: Report) -> str:
    """Return the report as Markdown; the best of a column is bold."""
    parts = ["# Results"]
    for section in report.sections:
        parts.append(f"## {section.title}")
        for table in section.tables:
            parts += [f"### {_escape(table.title)}", _table(table)]
            parts += [table.caption] if table.caption else []
        parts += section.notes
    parts.append(f"{LEGEND}.")
    if report.notes or report.problems:
        parts.append("## Notes")
        listed = [*report.notes, *(f"Left out: {problem.folder}: {problem.reason}." for problem in report.problems)]
        parts.append("\n".join(f"- {_escape(note)}" for note in listed))
    return "\n\n".join(parts) + "\n"


def _table(table: Table) -> str:
    lines = [[table.first, *(column.title for column in table.columns)]]
    for line in table.lines:
        cells = [plain(value, column) for value, column in zip(line.values, table.columns, strict=True)]
        bold = [f"**{text}**" if value.best else text for text, value in zip(cells, line.values, strict=True)]
        lines.append([f"*{line.label}*" if line.kind == "paper" else line.label, *bold])
    rows = [[_escape(text) for text in line] for line in lines]
    widths = [max(3, *(len(row[place]) for row in rows)) for place in range(len(rows[0]))]
    texts = ["| " + " | ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (w + 2) if place == 0 else "-" * (w + 1) + ":" for place, w in enumerate(widths)) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
