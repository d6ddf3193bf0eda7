"""Render a report as Markdown, LaTeX, CSV and JSON. Each format escapes names, which may come from any file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cocoamix.errors import printable
from cocoamix.io.spreadsheets import text_cell

from .tables import Column, Table

if TYPE_CHECKING:
    from .report import Report

MISSING = "\u2013"  # an en dash
LEGEND = (
    f"Accuracy in percent: mean ± standard deviation (of the population) over seeds; {MISSING} is missing. Bold: "
    "cannot be distinguished from the best of our rows; the 95 % t-interval of the paired difference, over datasets "
    "or over the seeds of one dataset, contains 0."
)
_MARKUP = re.compile(r"[\\`*|<~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=\])\(|^#")
_SIGNS = dict(zip("\\~^<>|", ("backslash", "asciitilde", "asciicircum", "less", "greater", "bar"), strict=True))


def _greek(letter: str) -> str:
    """Return LaTeX's name of a Greek letter."""
    name = unicodedata.name(letter).split()[-1].replace("LAMDA", "LAMBDA")
    return name.capitalize() if letter.isupper() else name.lower()


_MATHS = {
    "±": r"\pm",
    "\N{MULTIPLICATION SIGN}": r"\times",
    "\N{MINUS SIGN}": "-",
    "≤": r"\leq",
    "≥": r"\geq",
    "≈": r"\approx",
    "→": r"\to",
    **{letter: f"\\{_greek(letter)}" for letter in "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"},
}
_LATEX = {
    MISSING: "--",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"{{{sign}}}" for sign in "[]*"},  # after the end of a row, they would be its option
    **{sign: f"\\text{name}{{}}" for sign, name in _SIGNS.items()},
    **{sign: f"${maths}$" for sign, maths in _MATHS.items()},
}

# ---------------------------------------------------------------------------------------- cells


@dataclass(frozen=True)
class Style:
    """How a format writes a cell: it escapes text, marks what is bold, writes a deviation, and sets remarks."""

    escape: Callable[[str], str]
    bold: str = "{}"
    spread: str = " ± {}"
    remark: str = " [{}]"
    missing: str = MISSING


def number(value: float, column: Column) -> str:
    """Return a number with the decimals of its column."""
    if column.key.startswith("p_") and value < 0.001:
        return "<0.001"
    text = f"{value:{'+' if column.signed else ''}.{column.decimals}f}"
    # A difference of -0.001 is "+0.00", not "-0.00".
    return text.replace("-", "+") if column.signed and float(text) == 0 else text


def parts(table: Table, row: str, column: Column) -> tuple[str, str]:
    """Return the number or the words of a cell, and its deviation; both are empty if it is missing."""
    mean, std = float(table.mean.at[row, column.key]), float(table.std.at[row, column.key])
    words = str(table.words.at[row, column.key])
    if words or np.isnan(mean):
        return words, ""
    return number(mean, column), "" if np.isnan(std) else f"{std:.{column.decimals}f}"


def remark_letters(table: Table) -> dict[str, str]:
    """Return a letter for each remark of a table: a, b, and so on."""
    texts = dict.fromkeys(text for row in table.rows for text in table.remarks.get(row, ()))
    return {text: chr(ord("a") + place % 26) * (1 + place // 26) for place, text in enumerate(texts)}


def layout(table: Table, style: Style) -> pd.DataFrame:
    """Return a table as text, a column for the labels and one for each of its columns."""
    letters = remark_letters(table)
    lines = []
    for row in table.rows:
        marks = ", ".join(letters[text] for text in table.remarks.get(row, ()))
        cells = [style.escape(row) + (style.remark.format(marks) if marks else "")]
        for column in table.columns:
            text, spread = parts(table, row, column)
            shown = style.escape(text) + (style.spread.format(spread) if spread else "") if text else style.missing
            cells.append(style.bold.format(shown) if table.bold.at[row, column.key] else shown)
        lines.append(cells)
    return pd.DataFrame(lines, columns=[style.escape(title) for title in (table.first, *table.titles)])


def captions(table: Table) -> list[str]:
    """Return the sentences below a table: its caption, and what the letters of its rows mean."""
    listed = "; ".join(f"[{letter}] {text}" for text, letter in remark_letters(table).items())
    rows = "all rows of ours" if table.published else "all rows"
    shared = f"Caveat of {rows}: {', '.join(table.caveats)}." if table.caveats else ""
    return [text for text in (table.caption, shared, f"{listed}." if listed else "") if text]


def left_out(report: Report) -> list[str]:
    """Return the runs that are not in a report, with the reason."""
    return [f"Left out: {run.folder}: {run.reason}." for run in report.frame.left_out]


def _tables(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield the tables with the titles of their sections."""
    for section in report.sections:
        yield from ((section.title, table) for table in section.tables)


# ---------------------------------------------------------------------------------------- Markdown


def markdown(report: Report) -> str:
    """Return the report as Markdown."""
    texts = ["# Results"]
    for section in report.sections:
        texts.append(f"## {escape_markdown(section.title)}")
        for table in section.tables:
            texts += [f"### {escape_markdown(table.title)}", markdown_table(table)]
        texts += map(escape_markdown, section.notes)
    texts.append(LEGEND)
    listed = [*report.notes, *left_out(report)]
    if listed:
        texts += ["## Notes", "\n".join(f"- {escape_markdown(note)}" for note in listed)]
    return "\n\n".join(texts) + "\n"


def markdown_table(table: Table, bold: str = "**{}**") -> str:
    """Return a table and its captions as Markdown."""
    lines = layout(table, Style(escape_markdown, bold, remark=r" \[{}]"))
    return "\n\n".join([to_markdown(lines), *map(escape_markdown, captions(table))])


def to_markdown(lines: pd.DataFrame) -> str:
    """Return cells as a Markdown table, the first column left-aligned."""
    align = ["left", *["right"] * (lines.shape[1] - 1)]
    return str(lines.to_markdown(index=False, disable_numparse=True, colalign=align))


def escape_markdown(text: str) -> str:
    """Escape text for Markdown, on one line."""
    line = printable(" ".join(text.splitlines()))
    return _MARKUP.sub(lambda sign: "&lt;" if sign[0] == "<" else f"\\{sign[0]}", line)


# ---------------------------------------------------------------------------------------- LaTeX


def latex(report: Report) -> str:
    """Return one table environment for each table. The preamble needs booktabs and graphicx."""
    notes = [note for section in report.sections for note in section.notes]
    comments = [f"Needs \\usepackage{{booktabs,graphicx}}. {LEGEND}", *notes, *report.notes, *left_out(report)]
    texts = [f"% {printable(' '.join(text.split()))}" for text in comments]
    return "\n\n".join([*texts, *(latex_table(table, title) for title, table in _tables(report))]) + "\n"


def latex_table(table: Table, section: str) -> str:
    """Return a table environment. A table that is wider than the text is made smaller."""
    spread, remark = r" {{\small$\pm$ {}}}", r"\textsuperscript{{{}}}"
    lines = layout(table, Style(escape_latex, r"\textbf{{{}}}", spread, remark, missing="--"))
    caption = escape_latex(" ".join([f"{section}: {table.title}.", *captions(table)]))
    columns = "l" + "r" * len(table.columns)
    return "\n".join(
        [
            r"\begin{table}[tbp]",
            rf"\centering\setlength{{\tabcolsep}}{{4pt}}\caption{{{caption}}}\label{{tab:{table.key}}}\smallskip",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            lines.to_latex(index=False, escape=False, column_format=columns).rstrip() + "}",
            r"\end{table}",
        ]
    )


def escape_latex(text: str) -> str:
    """Escape text for LaTeX, on one line."""
    escaped = "".join(_LATEX.get(letter, letter) for letter in printable(" ".join(text.split())))
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)


# ---------------------------------------------------------------------------------------- other programs


def csv(report: Report) -> str:
    """Return one line for each cell of each table; a missing cell has an empty mean."""
    lines = []
    for section, table in _tables(report):
        for row, kind, remarks in _rows(table):
            for column in table.columns:
                names = map(text_cell, (section, table.title, row, kind, column.title))
                mean, std, n, words, bold = table.cell(row, column.key)
                lines.append([*names, mean, std, n or None, text_cell(words), int(bold), text_cell("; ".join(remarks))])
    columns = ["section", "table", "line", "kind", "column", "mean", "std", "n", "text", "best", "remarks"]
    return pd.DataFrame(lines, columns=columns).astype({"n": "Int64"}).round(6).to_csv(index=False, lineterminator="\n")


def _rows(table: Table) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the label, kind and remarks of each row."""
    for row in table.rows:
        kind = "published" if row in table.published else "own"
        yield row, kind, [*table.caveats * (kind == "own"), *table.remarks.get(row, ())]


def json(report: Report) -> dict[str, Any]:
    """Return the report as plain data."""
    runs = report.frame.runs.drop(columns=["facts", "written"]).reset_index()
    sections = [
        {"key": section.key, "title": section.title, "notes": section.notes, "tables": section.tables}
        for section in report.sections
    ]
    left = [{"folder": run.folder, "kind": run.kind, "reason": run.reason} for run in report.frame.left_out]
    content = {"folders": report.folders, "sections": sections, "notes": report.notes, "left_out": left}
    plain: dict[str, Any] = _plain({**content, "runs": runs.to_dict("records")})
    return plain


def _json_table(table: Table) -> dict[str, Any]:
    lines = []
    for row, kind, remarks in _rows(table):
        line: dict[str, Any] = {"label": row, "kind": kind, "remarks": remarks}
        for column in table.columns:
            mean, std, n, words, bold = table.cell(row, column.key)
            values = {"mean": mean, "std": std, "n": n, "seeds": table.seeds.get((row, column.key), []), "best": bold}
            line[column.key] = words or None if np.isnan(mean) else values
        lines.append(line)
    return {"key": table.key, "title": table.title, "caption": table.caption, "lines": lines}


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Table):
        return _plain(_json_table(value))
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str):
        return printable(value)
    if value is None or pd.isna(value):
        return None
    return value.item() if isinstance(value, np.generic) else value
