"""The tables as LaTeX, in booktabs style."""

from __future__ import annotations

from .build import Report
from .cells import MISSING, number, spread
from .tables import Column, Table, Value

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    MISSING: "--",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def render(report: Report) -> str:
    """Return one table environment for each table. The preamble needs booktabs and nothing else."""
    parts = ["% Needs \\usepackage{booktabs}."]
    for section in report.sections:
        for table in section.tables:
            parts.append(_table(table, section.title))
        parts += [f"% {note}" for note in section.notes]
    parts += [f"% {note}" for note in report.notes]
    parts += [f"% Left out: {problem.folder}: {problem.reason}." for problem in report.problems]
    return "\n\n".join(parts) + "\n"


def _table(table: Table, section: str) -> str:
    lines = [
        r"\begin{table}[tb]",
        r"  \centering",
        rf"  \caption{{{escape(f'{section}: {table.title}. {table.caption}'.strip())}}}",
        rf"  \label{{tab:{table.key}}}",
        rf"  \begin{{tabular}}{{l{'c' * len(table.columns)}}}",
        r"    \toprule",
        "    " + " & ".join(escape(text) for text in [table.first, *(c.title for c in table.columns)]) + r" \\",
        r"    \midrule",
    ]
    before = "own"
    for line in table.lines:
        if line.kind != before:
            lines.append(r"    \midrule")
            before = line.kind
        cells = [_cell(value, column) for value, column in zip(line.values, table.columns, strict=True)]
        lines.append("    " + " & ".join([escape(line.label), *cells]) + r" \\")
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"])


def _cell(value: Value, column: Column) -> str:
    if value.missing:
        return "--"
    text = escape(number(value, column))
    if value.mean is not None and text.startswith(("-", "+")):
        text = f"${text}$"
    deviation = spread(value, column)
    text = rf"\textbf{{{text}}}" if value.best else text
    return text + (rf" {{\small$\pm$ {deviation}}}" if deviation else "")


def escape(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    return "".join(_SPECIAL.get(character, character) for character in text)
