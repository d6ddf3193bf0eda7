"""Render a report as Markdown, LaTeX, CSV, JSON and HTML. Each format escapes names, which may come from any file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cocoamix import __version__
from cocoamix.errors import printable
from cocoamix.io.spreadsheets import text_cell

from .tables import Row, Table

if TYPE_CHECKING:
    from .report import Report

MISSING = "\u2013"  # an en dash
LEGEND = (
    f"Accuracy in percent: mean ± standard deviation (of the population) over seeds; {MISSING} is missing. Bold: "
    "cannot be distinguished from the best of our rows; the 95 % t-interval of the paired difference, over datasets "
    "or over the seeds of one dataset, contains 0."
)
_MARKUP = re.compile(r"[\\`*|<~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=\])\(|^#")
_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
_SIGNS = "backslash asciitilde asciicircum less greater bar"
_LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        **{sign: f"{{{sign}}}" for sign in "[]*"},  # after the end of a row, they would be its option
        **{sign: f"\\text{name}{{}}" for sign, name in zip("\\~^<>|", _SIGNS.split(), strict=True)},
        **{sign: f"$\\{name}$" for sign, name in zip("αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ", _GREEK.split(), strict=True)},
        "±": r"$\pm$",
        MISSING: "--",
    }
)


def captions(table: Table) -> list[str]:
    """Return the sentences below a table: its caption, and what the letters of its rows mean."""
    listed = "; ".join(f"[{letter}] {text}" for text, letter in letters(table).items())
    rows = "all rows of ours" if any(row.published for row in table.rows.values()) else "all rows"
    shared = f"Caveat of {rows}: {', '.join(table.caveats)}." if table.caveats else ""
    return [text for text in (table.caption, shared, f"{listed}." if listed else "") if text]


def letters(table: Table) -> dict[str, str]:
    """Return a letter for each remark of a table: a, b, and so on."""
    texts = dict.fromkeys(text for row in table.rows.values() for text in row.remarks)
    return {text: chr(ord("a") + place % 26) * (1 + place // 26) for place, text in enumerate(texts)}


def left_out(report: Report) -> list[str]:
    """Return the runs that are not in a report, with the reason."""
    return [f"Left out: {run.folder}: {run.reason}." for run in report.frame.left_out]


# ---------------------------------------------------------------------------------------- Markdown and LaTeX


def _layout(table: Table, escape: Callable[[str], str], bold: str, spread: str, remark: str) -> pd.DataFrame:
    """Return a table as text: a column for the methods and one for each of its columns, marked by templates."""
    marks, lines = letters(table), []
    for name, row in table.rows.items():
        remarks = ", ".join(marks[text] for text in row.remarks)
        cells = [escape(name) + (remark.format(remarks) if remarks else "")]
        for cell in (row.cells[column.key] for column in table.columns):
            text = escape(cell.text or MISSING) + (spread.format(cell.spread) if cell.spread else "")
            cells.append(bold.format(text) if cell.bold else text)
        lines.append(cells)
    return pd.DataFrame(lines, columns=["method", *(escape(column.title) for column in table.columns)])


def markdown(report: Report, short: bool = False) -> str:
    """Return the report as Markdown; if it is to be short, only the first table of each section."""
    texts = [] if short else ["# Results"]
    for section in report.sections:
        texts.append(f"## {escape_markdown(section.title)}")
        for table in section.tables[: 1 if short else None]:
            texts += [f"### {escape_markdown(table.title)}", _markdown_table(table)]
        texts += map(escape_markdown, section.notes)
    texts.append(LEGEND)
    listed = [*report.notes, *left_out(report)]
    if listed:
        texts += ["## Notes", "\n".join(f"- {escape_markdown(note)}" for note in listed)]
    return "\n\n".join(texts) + "\n"


def _markdown_table(table: Table) -> str:
    lines = _layout(table, escape_markdown, bold="**{}**", spread=" ± {}", remark=r" \[{}]")
    align = ["left", *["right"] * len(table.columns)]
    text = str(lines.to_markdown(index=False, disable_numparse=True, colalign=align))
    return "\n\n".join([text, *map(escape_markdown, captions(table))])


def escape_markdown(text: str) -> str:
    """Escape text for Markdown, on one line."""
    line = printable(" ".join(text.splitlines()))
    return _MARKUP.sub(lambda sign: "&lt;" if sign[0] == "<" else f"\\{sign[0]}", line)


def latex(report: Report) -> str:
    """Return one table environment for each table. The preamble needs booktabs and graphicx."""
    notes = [note for section in report.sections for note in section.notes]
    comments = [f"Needs \\usepackage{{booktabs,graphicx}}. {LEGEND}", *notes, *report.notes, *left_out(report)]
    texts = [f"% {printable(' '.join(text.split()))}" for text in comments]
    tables = [_latex_table(table, section.title) for section in report.sections for table in section.tables]
    return "\n\n".join([*texts, *tables]) + "\n"


def _latex_table(table: Table, section: str) -> str:
    """Return a table environment. A table that is wider than the text is made smaller."""
    shown = _layout(table, escape_latex, r"\textbf{{{}}}", r" {{\small$\pm$ {}}}", r"\textsuperscript{{{}}}")
    content = shown.to_latex(index=False, escape=False, column_format="l" + "r" * len(table.columns))
    caption = escape_latex(" ".join([f"{section}: {table.title}.", *captions(table)]))
    lines = [
        r"\begin{table}[tbp]",
        rf"\centering\setlength{{\tabcolsep}}{{4pt}}\caption{{{caption}}}\label{{tab:{table.key}}}\smallskip",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        content.rstrip() + "}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def escape_latex(text: str) -> str:
    """Escape text for LaTeX, on one line."""
    escaped = printable(" ".join(text.split())).translate(_LATEX)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)


# ---------------------------------------------------------------------------------------- other programs


def csv(report: Report) -> str:
    """Return one line for each cell of each table; a missing cell has an empty mean."""
    lines = []
    for title, table in [(section.title, table) for section in report.sections for table in section.tables]:
        for label, row, kind, remarks in _rows(table):
            for column in table.columns:
                cell = row.cells[column.key]
                names = map(text_cell, (title, table.title, label, kind, column.title))
                numbers = (cell.mean, cell.std, cell.n or None, text_cell(cell.text), int(cell.bold))
                lines.append((*names, *numbers, text_cell("; ".join(remarks))))
    columns = ["section", "table", "line", "kind", "column", "mean", "std", "n", "text", "best", "remarks"]
    return pd.DataFrame(lines, columns=columns).astype({"n": "Int64"}).round(6).to_csv(index=False, lineterminator="\n")


def _rows(table: Table) -> Iterator[tuple[str, Row, str, list[str]]]:
    """Yield the rows of a table with their label, kind and remarks."""
    for label, row in table.rows.items():
        caveats = [] if row.published else table.caveats
        yield label, row, "published" if row.published else "own", [*caveats, *row.remarks]


def json(report: Report) -> dict[str, Any]:
    """Return the report as plain data."""
    sections = [
        {"key": section.key, "title": section.title, "notes": section.notes, "tables": list(map(_data, section.tables))}
        for section in report.sections
    ]
    runs = report.frame.runs.drop(columns=["facts", "written"]).reset_index().to_dict("records")
    left = [asdict(run) for run in report.frame.left_out]
    content = {"folders": report.folders, "sections": sections, "notes": report.notes, "left_out": left, "runs": runs}
    plain: dict[str, Any] = _plain(content)
    return plain


def _data(table: Table) -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    for label, row, kind, remarks in _rows(table):
        lines.append({"label": label, "kind": kind, "remarks": remarks})
        for column in table.columns:
            cell = row.cells[column.key]
            numbers = {"mean": cell.mean, "std": cell.std, "n": cell.n, "seeds": cell.seeds, "best": cell.bold}
            lines[-1][column.key] = cell.text or None if np.isnan(cell.mean) else numbers
    return {"key": table.key, "title": table.title, "caption": table.caption, "lines": lines}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return printable(value)
    if value is None or pd.isna(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


def html(report: Report, figures: Mapping[str, list[tuple[str, str]]]) -> str:
    """Return the report as one page, with the titles and SVG files of the figures of each section."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["printable"] = printable
    stamp = os.environ.get("SOURCE_DATE_EPOCH", "")  # for reproducible output
    day = datetime.fromtimestamp(int(stamp), timezone.utc) if stamp.isdigit() else datetime.now()
    names = {"captions": captions, "letters": letters, "left_out": left_out(report), "legend": LEGEND}
    return environment.get_template("page.html.j2").render(
        report=report,
        figures=figures,
        title="Results" + (f" with {', '.join(report.backbones)}" if report.backbones else ""),
        date=f"{day.day} {day:%B %Y}",
        version=__version__,
        **names,
    )
