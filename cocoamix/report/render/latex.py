"""The tables as LaTeX, in booktabs style."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from cocoamix.report.build import Report
from cocoamix.report.model.tables import Column, Table, Value

from .cells import LEGEND, MISSING, number, plain, spread

_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"
_SIGNS = {
    "±": "pm",
    "\N{MULTIPLICATION SIGN}": "times",
    "≤": "leq",
    "≥": "geq",
    "≈": "approx",
    "→": "rightarrow",
}


def _greek(letter: str) -> str:
    name = unicodedata.name(letter).split()[-1].replace("LAMDA", "LAMBDA")
    return name.lower() if letter.islower() else name.capitalize()


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
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    MISSING: "--",
    "\N{MINUS SIGN}": "$-$",
    **{sign: rf"$\{name}$" for sign, name in _SIGNS.items()},
    **{letter: rf"$\{_greek(letter)}$" for letter in _GREEK},
}
_WIDEST = 105  # characters, at which a 10-point font on a one-column page shrinks to about 6 points
_GAP = 2  # characters between columns


def render(report: Report) -> str:
    """Return one table environment for each table. The preamble needs booktabs and graphicx."""
    parts = [_comment(f"Needs \\usepackage{{booktabs,graphicx}}. {LEGEND}; the best of a column is bold.")]
    for section in report.sections:
        for table in section.tables:
            parts.append(_table(table, section.title))
        parts += [_comment(note) for note in section.notes]
    parts += [_comment(note) for note in report.notes]
    parts += [_comment(f"Left out: {problem.folder}: {problem.reason}.") for problem in report.problems]
    return "\n\n".join(parts) + "\n"


def _comment(text: str) -> str:
    return "\n".join(f"% {line}" for line in text.splitlines())


def _table(table: Table, section: str) -> str:
    caption = escape(f"{section}: {table.title}. {table.caption}".strip())
    lines = [
        r"\begin{table}[tbp]",
        r"  \centering",
        r"  \setlength{\tabcolsep}{4pt}",
        rf"  \caption{{{caption}}}",
        rf"  \label{{tab:{table.key}}}",
        r"  \smallskip",
        # Shrink a table that is wider than the text, all parts by the same factor.
        r"  \resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        r"  \begin{tabular}{@{}l@{}}",
    ]
    for part, places in enumerate(_blocks(table)):
        lines += [r"  \\ \noalign{\medskip}"] * bool(part)
        lines += _tabular(table, places)
    return "\n".join([*lines, r"  \end{tabular}}", r"\end{table}"])


def _blocks(table: Table) -> Iterator[Sequence[int]]:
    """Yield the columns of each part of a table, because many columns side by side would be too small to read."""
    texts = [
        [column.title, *(plain(line.values[place], column) for line in table.lines)]
        for place, column in enumerate(table.columns)
    ]
    widths = [_GAP + max(len(text) for text in column) for column in texts]
    first = max(len(text) for text in [table.first, *(line.label for line in table.lines)])
    count = max(1, -(-sum(widths) // max(1, _WIDEST - first)))
    size = max(1, -(-len(widths) // count))
    for start in range(0, len(widths), size):
        yield range(start, min(start + size, len(widths)))


def _tabular(table: Table, places: Sequence[int]) -> Iterator[str]:
    """Yield the LaTeX lines of a tabular with some of the columns."""
    yield rf"  \begin{{tabular}}{{l{'c' * len(places)}}}"
    yield r"    \toprule"
    yield _row([escape(text) for text in [table.first, *(table.columns[place].title for place in places)]])
    yield r"    \midrule"
    before = "own"
    for line in table.lines:
        if line.kind != before:
            yield r"    \midrule"
            before = line.kind
        yield _row([escape(line.label), *(_cell(line.values[place], table.columns[place]) for place in places)])
    yield r"    \bottomrule"
    yield r"  \end{tabular}"


def _row(cells: Sequence[str]) -> str:
    text = " & ".join(cells)
    # After the end of a row or a rule, LaTeX would take these for an option.
    return "    " + ("{}" if text.startswith(("[", "*")) else "") + text + r" \\"


def _cell(value: Value, column: Column) -> str:
    if value.missing:
        return "--"
    text = number(value, column)
    if value.mean is not None and text.startswith(("-", "+")):
        text = rf"$\mathbf{{{text}}}$" if value.best else f"${text}$"
    else:
        text = rf"\textbf{{{escape(text)}}}" if value.best else escape(text)
    deviation = spread(value, column)
    return text + (rf" {{\small$\pm$ {deviation}}}" if deviation else "")


def escape(text: str) -> str:
    """Escape text for LaTeX."""
    return "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))
