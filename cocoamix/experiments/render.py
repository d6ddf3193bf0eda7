"""Render a report as text, Markdown, LaTeX, CSV and JSON. Each format escapes names, which may come from any file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from tabulate import tabulate

from cocoamix.errors import printable
from cocoamix.io.spreadsheets import text_cell

from .tables import Column, Table

if TYPE_CHECKING:
    from .report import Report

_WIDEST = 105  # characters of a LaTeX table, at which a 10-point font on a one-column page shrinks to about 6 points
MISSING = "\u2013"  # an en dash
LEGEND = (
    f"Accuracy in percent: mean ± standard deviation (of the population) over seeds; {MISSING} is missing. Bold: "
    "cannot be told from the best of the column; the 95 % t-interval of the paired difference, over datasets or over "
    "the seeds of one dataset, contains 0"
)
_MARKUP = re.compile(r"[\\`*|<]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|(?<=\])\(|^#")
_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"


def _greek(letter: str) -> str:
    name = unicodedata.name(letter).split()[-1].replace("LAMDA", "LAMBDA")
    return name.lower() if letter.islower() else name.capitalize()


_SIGNS = {
    "\\": "textbackslash",
    "~": "textasciitilde",
    "^": "textasciicircum",
    "<": "textless",
    ">": "textgreater",
    "|": "textbar",
}
_MATHS = {
    "±": r"\pm",
    "\N{MULTIPLICATION SIGN}": r"\times",
    "≤": r"\leq",
    "≥": r"\geq",
    "≈": r"\approx",
    "→": r"\to",
    "\N{MINUS SIGN}": "-",
    **{letter: f"\\{_greek(letter)}" for letter in _GREEK},
}
_LATEX = {
    MISSING: "--",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{sign: f"{{{sign}}}" for sign in "[]*"},  # after the end of a row, they would be its option
    **{sign: f"\\{name}{{}}" for sign, name in _SIGNS.items()},
    **{sign: f"${maths}$" for sign, maths in _MATHS.items()},
}
_KINDS = {
    "broken": "cannot be read",
    "unfinished": "not finished",
    "stopped": "stopped before the last session",
    "duplicate": "duplicates",
}


# ---------------------------------------------------------------------------------------- cells


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


@dataclass(frozen=True)
class Style:
    """How a format writes a cell: it escapes text, marks what is bold, writes a deviation, and sets remarks."""

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    spread: str = " ± {}"
    remark: str = " [{}]"
    published: str = "{}"
    missing: str = MISSING


def layout(table: Table, style: Style) -> list[list[str]]:
    """Return the lines of a table as text; the first is the header."""
    letters = remark_letters(table)
    lines = [[style.escape(title) for title in (table.first, *(column.title for column in table.columns))]]
    for row in table.rows:
        label = style.published.format(style.escape(row)) if row in table.published else style.escape(row)
        marks = ", ".join(letters[text] for text in table.remarks.get(row, ()))
        cells = []
        for column in table.columns:
            text, spread = parts(table, row, column)
            shown = style.escape(text) + (style.spread.format(spread) if spread else "") if text else style.missing
            cells.append(style.bold(shown) if table.bold.at[row, column.key] else shown)
        lines.append([label + (style.remark.format(marks) if marks else ""), *cells])
    return lines


def captions(table: Table) -> list[str]:
    """Return the sentences below a table: its caption, and what the letters of its rows mean."""
    listed = "; ".join(f"[{letter}] {text}" for text, letter in remark_letters(table).items())
    shared = (
        f"Caveat of all rows{' of ours' * bool(table.published)}: {', '.join(table.caveats)}." if table.caveats else ""
    )
    return [text for text in (table.caption, shared, f"{listed}." if listed else "") if text]


def left_out(report: Report) -> list[str]:
    """Return the runs that are not in a report, with the reason."""
    return [f"Left out: {run.folder}: {run.reason}." for run in report.frame.left_out]


def _blocks(table: Table, width: int) -> Iterator[list[int]]:
    """Yield the columns of each part of a table that fits into a width. The labels are in each part."""
    lines = layout(table, Style(printable, str))
    sizes = [max(len(line[place]) for line in lines) + 2 for place in range(len(lines[0]))]
    places = [0]
    for place in range(1, len(sizes)):
        if len(places) > 1 and sum(sizes[other] for other in places) + sizes[place] > width:
            yield places
            places = [0]
        places.append(place)
    yield places


# ---------------------------------------------------------------------------------------- terminal


def text(report: Report, width: int = 100, colour: bool = False) -> str:
    """Return the tables as text. Without colour, a star marks what is bold."""
    style = Style(printable, (lambda cell: f"\033[1m{cell}\033[0m") if colour else (lambda cell: f"{cell}*"))
    texts = []
    for section in report.sections:
        title = printable(section.title)
        texts.append(f"{title}\n{'=' * len(title)}")
        for table in section.tables:
            lines = layout(table, style)
            blocks = [
                _text_table([[line[p] for p in places] for line in lines], colour) for places in _blocks(table, width)
            ]
            texts.append("\n\n".join([f"{printable(table.title)}\n{blocks[0]}", *blocks[1:]]))
            texts += map(printable, captions(table))
        texts += map(printable, section.notes)
    texts.append(LEGEND + ("." if colour else "; a * stands for bold."))
    if report.notes:
        texts.append("\n".join(["Notes:", *(f"  {printable(note)}" for note in report.notes)]))
    return "\n\n".join(texts) + "\n"


def _text_table(lines: Sequence[Sequence[str]], colour: bool) -> str:
    if not colour:  # numbers stay aligned beside those with a star
        lines = [lines[0], *([line[0], *(c if c.endswith("*") else f"{c} " for c in line[1:])] for line in lines[1:])]
    return _tabulate(lines, "simple")


def _tabulate(lines: Sequence[Sequence[str]], form: str) -> str:
    align = ["left", *["right"] * (len(lines[0]) - 1)]
    options: dict[str, Any] = {"tablefmt": form, "disable_numparse": True, "colalign": align}
    return tabulate(lines[1:], headers=lines[0], preserve_whitespace=True, **options)


def problems(report: Report) -> str:
    """Return the list of runs that were left out, for the error stream."""
    lines = []
    for kind, title in _KINDS.items():
        runs = [run for run in report.frame.left_out if run.kind == kind]
        if runs:
            lines.append(f"Left out, {title} ({len(runs)}):")
            lines += [f"  {printable(run.folder)}: {printable(run.reason)}" for run in runs[:20]]
            lines += [f"  and {len(runs) - 20} more"] if len(runs) > 20 else []
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------- Markdown


def markdown(report: Report) -> str:
    """Return the report as Markdown."""
    texts = ["# Results"]
    for section in report.sections:
        texts.append(f"## {escape_markdown(section.title)}")
        for table in section.tables:
            texts += [f"### {escape_markdown(table.title)}", markdown_table(table)]
        texts += map(escape_markdown, section.notes)
    texts.append(f"{LEGEND}.")
    listed = [*report.notes, *left_out(report)]
    if listed:
        texts += ["## Notes", "\n".join(f"- {escape_markdown(note)}" for note in listed)]
    return "\n\n".join(texts) + "\n"


def markdown_table(table: Table) -> str:
    """Return a table and its captions as Markdown."""
    lines = layout(table, Style(escape_markdown, lambda cell: f"**{cell}**", remark=r" \[{}]", published="*{}*"))
    return "\n\n".join([to_markdown(lines), *map(escape_markdown, captions(table))])


def to_markdown(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells, the first of which is the header, as a Markdown table."""
    return _tabulate(lines, "pipe")


def escape_markdown(text: str) -> str:
    """Escape text for Markdown, on one line."""
    return _MARKUP.sub(
        lambda sign: "&lt;" if sign[0] == "<" else f"\\{sign[0]}", printable(" ".join(text.splitlines()))
    )


# ---------------------------------------------------------------------------------------- LaTeX


def latex(report: Report) -> str:
    """Return one table environment for each table. The preamble needs booktabs and graphicx."""
    texts = [_comment(f"Needs \\usepackage{{booktabs,graphicx}}. {LEGEND}.")]
    for section in report.sections:
        texts += [latex_table(table, section.title) for table in section.tables]
        texts += map(_comment, section.notes)
    texts += map(_comment, [*report.notes, *left_out(report)])
    return "\n\n".join(texts) + "\n"


def _comment(text: str) -> str:
    return f"% {printable(' '.join(text.split()))}"


def latex_table(table: Table, section: str) -> str:
    """Return a table environment, in several parts if it is wide."""
    style = Style(
        escape_latex, r"\textbf{{{}}}".format, r" {{\small$\pm$ {}}}", r"\textsuperscript{{{}}}", missing="--"
    )
    lines = layout(table, style)
    caption = escape_latex(" ".join([f"{section}: {table.title}.", *captions(table)]))
    tabulars = []
    for places in _blocks(table, _WIDEST):
        head, *block = ([line[place] for place in places] for line in lines)
        columns = "l" + "r" * (len(places) - 1)
        tabulars.append(pd.DataFrame(block, columns=head).to_latex(index=False, escape=False, column_format=columns))
    return "\n".join(
        [
            r"\begin{table}[tbp]",
            rf"\centering\setlength{{\tabcolsep}}{{4pt}}\caption{{{caption}}}\label{{tab:{table.key}}}\smallskip",
            # Shrink a table that is wider than the text, all parts by the same factor.
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{\begin{tabular}{@{}l@{}}",
            "\\\\ \\noalign{\\medskip}\n".join(tabulars) + r"\end{tabular}}",
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
    for section in report.sections:
        for table in section.tables:
            for row in table.rows:
                kind = "published" if row in table.published else "own"
                remarks = text_cell("; ".join([*table.caveats * (kind == "own"), *table.remarks.get(row, ())]))
                for column in table.columns:
                    names = map(text_cell, (section.title, table.title, row, kind, column.title))
                    mean, std, n, words, bold = cell(table, row, column.key)
                    lines.append([*names, mean, std, n or None, text_cell(words), int(bold), remarks])
    columns = ["section", "table", "line", "kind", "column", "mean", "std", "n", "text", "best", "remarks"]
    return pd.DataFrame(lines, columns=columns).astype({"n": "Int64"}).round(6).to_csv(index=False, lineterminator="\n")


def cell(table: Table, row: str, key: str) -> tuple[float, float, int, str, bool]:
    """Return mean, deviation, number of seeds and words of a cell, and whether it is bold."""
    mean, std, words = table.mean.at[row, key], table.std.at[row, key], table.words.at[row, key]
    return float(mean), float(std), int(table.n.at[row, key]), str(words), bool(table.bold.at[row, key])


def json(report: Report) -> dict[str, Any]:
    """Return the report as plain data."""
    runs = report.frame.runs.reset_index()
    kept = [name for name in runs if name not in ("facts", "written")]
    return {
        "folders": [printable(folder) for folder in report.folders],
        "sections": [
            {
                "key": section.key,
                "title": section.title,
                "notes": section.notes,
                "tables": list(map(_json_table, section.tables)),
            }
            for section in report.sections
        ],
        "notes": report.notes,
        "left_out": [
            {"folder": printable(run.folder), "kind": run.kind, "reason": printable(run.reason)}
            for run in report.frame.left_out
        ],
        "runs": [{key: _plain(value) for key, value in run.items()} for run in runs[kept].to_dict("records")],
    }


def _json_table(table: Table) -> dict[str, Any]:
    lines = []
    for row in table.rows:
        line: dict[str, Any] = {"label": row, "kind": "published" if row in table.published else "own"}
        line["remarks"] = [*table.caveats * (row not in table.published), *table.remarks.get(row, [])]
        for column in table.columns:
            mean, std, n, words, bold = cell(table, row, column.key)
            values = {"mean": _plain(mean), "std": _plain(std), "n": n, "seeds": table.seeds.get((row, column.key), [])}
            line[column.key] = words or None if np.isnan(mean) else {**values, "best": bold}
        lines.append(line)
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
