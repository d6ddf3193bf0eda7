"""The report as one self-contained HTML page."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from html import escape
from pathlib import Path

from cocoamix import __version__
from cocoamix.drawing.chart import Chart
from cocoamix.drawing.charts import to_inline_svg, variables
from cocoamix.report.build import Report
from cocoamix.report.model.tables import HIGH, PLAIN, Column, Line, Section, Table, Value

from .cells import LEGEND, MISSING, number, spread

_HERE = Path(__file__).parent
_MOST_NOTES = 4  # shown below a table; if there are more, they open on a click
_MOST_BACKBONES = 3  # in the title
_OPTION = re.compile(r"(?<!\S)--[a-z][a-z-]*(?!\S)")
_MARKS = {
    "up": '<span class="sign" aria-hidden="true">▲</span><span class="hidden">, better</span>',
    "down": '<span class="sign" aria-hidden="true">▼</span><span class="hidden">, worse</span>',
    "": '<span class="sign" aria-hidden="true"></span>',
}
_LEGEND_OF_MARKS = (
    '<span class="up"><span class="sign" aria-hidden="true">▲</span> better</span>, '
    '<span class="down"><span class="sign" aria-hidden="true">▼</span> worse</span> than'
)
# The page may use its own script and styles, but cannot load anything.
_POLICY = "; ".join(
    [
        "default-src 'none'",
        "img-src data:",
        "style-src 'unsafe-inline'",
        "script-src 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
)


def render(report: Report, drawn: Mapping[str, str] | None = None) -> str:
    """Return the page.

    Args:
        report: The report.
        drawn: The figures that have been drawn already: light SVG files by the keys of the charts.
    """
    links = "".join(f'<li><a href="#{one.key}">{escape(one.title)}</a></li>' for one in report.sections)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<link rel="icon" href="data:,">',
            f"<title>{escape(_title(report))}, {_date()}</title>",
            f"<style>\n{_styles()}</style>",
            "</head>",
            "<body>",
            _header(report),
            f'<nav aria-label="Sections"><ul>{links}</ul></nav>' if len(report.sections) > 1 else "",
            "<main>",
            _notices(report),
            *(_section(section, drawn or {}) for section in report.sections),
            "</main>",
            f"<footer><p>{LEGEND}; bold is the best of a column.</p></footer>",
            '<div id="spoken" class="hidden" aria-live="polite"></div>',
            f"<script>\n{(_HERE / 'page.js').read_text(encoding='utf-8')}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _header(report: Report) -> str:
    """Return the title, with the date, the version, the runs and the command."""
    count = len(report.runs)
    facts = [
        _date(),
        f"cocoamix {__version__}",
        f"{count} run{'s' * (count != 1)} from {', '.join(report.folders)}",
    ]
    parts = [f"<h1>{escape(_title(report))}</h1>", f'<p class="lead">{escape(" · ".join(facts))}</p>']
    if report.command:
        # An option, such as --name, must not break at its hyphens.
        command = _OPTION.sub(r'<span class="option">\g<0></span>', escape(report.command))
        parts.append(f'<p class="lead"><code>{command}</code></p>')
    return "\n".join(["<header>", *parts, "</header>"])


def _title(report: Report) -> str:
    names = ["the tiny CLIP" if name == "tiny" else name for name in report.backbones]
    shown = ", ".join(names[:_MOST_BACKBONES]) + (", ..." if len(names) > _MOST_BACKBONES else "")
    return f"Results with {shown}" if names else "Results"


def _date() -> str:
    """Return today's date, or that of SOURCE_DATE_EPOCH for reproducible output."""
    stamp = os.environ.get("SOURCE_DATE_EPOCH", "")
    day = datetime.fromtimestamp(int(stamp), timezone.utc) if stamp.isdigit() else datetime.now()
    return f"{day.day} {day:%B %Y}"


def _styles() -> str:
    css = (_HERE / "page.css").read_text(encoding="utf-8")
    for mark, place in (("/* colours */", 0), ("/* dark colours */", 1)):
        values = " ".join(f"--{name}: {pair[place]};" for name, pair in variables().items())
        css = css.replace(mark, values)
    return css


def _notices(report: Report) -> str:
    parts = []
    if report.problems:
        listed = [f"{problem.folder}: {problem.reason}" for problem in report.problems]
        parts.append(_notice(f"Left out: {_count(listed, 'run')}", listed))
    if report.notes:
        parts.append(_notice(f"{_count(report.notes, 'note')} on averaging", report.notes))
    return "\n".join(parts)


def _count(listed: list[str], what: str) -> str:
    return f"{len(listed)} {what}{'s' * (len(listed) != 1)}"


def _notice(title: str, texts: list[str]) -> str:
    """Return a list that opens on a click, so that it does not push the first table out of view."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<details class="notice"><summary>{escape(title)}</summary><ul>{items}</ul></details>'


def _section(section: Section, drawn: Mapping[str, str]) -> str:
    """Return a section: main tables, then figures, then all other tables."""
    parts = [f'<section id="{section.key}">', f"<h2>{escape(section.title)}</h2>"]
    main = [table for table in section.tables[:2] if table is section.tables[0] or table.key.endswith("-difference")]
    parts += [_table(table, section.reference) for table in main]
    if len(section.notes) > _MOST_NOTES:
        parts.append(_notice(_count(section.notes, "note"), section.notes))
    else:
        parts += [f'<p class="note">{escape(note)}</p>' for note in section.notes]
    if section.charts:
        figures = "\n".join(_figure(chart, drawn.get(chart.key, "")) for chart in section.charts)
        parts.append(f'<div class="charts">\n{figures}\n</div>')
    parts += [_table(table, section.reference) for table in section.tables if table not in main]
    return "\n".join([*parts, "</section>"])


def _figure(chart: Chart, drawn: str) -> str:
    svg = to_inline_svg(chart, drawn).replace("<svg", f'<svg role="img" aria-label="{escape(chart.alt)}"', 1)
    name = escape(f"Figure: {chart.title}")
    return f'<figure><div class="plot" tabindex="0" role="region" aria-label="{name}">{svg}</div></figure>'


def _table(table: Table, reference: str) -> str:
    heads = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{escape(title)}</button></th>'
        for title in [table.first, *(column.title for column in table.columns)]
    )
    # Lines without any number, such as methods without an average, come last.
    ordered = sorted(table.lines, key=lambda line: all(value.mean is None for value in line.values))
    marked = [
        any(_direction(line.values[place], column) for line in table.lines)
        for place, column in enumerate(table.columns)
    ]
    lines = "\n".join(_line(line, table.columns, marked, reference) for line in ordered)
    legend = f'<p class="caption">{_LEGEND_OF_MARKS} {escape(reference)}</p>' if any(marked) and reference else ""
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    wide = ' class="wide"' if len(table.columns) > 8 else ""
    return (
        f'<h3 id="{table.key}">{escape(table.title)}</h3>\n{legend}'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{table.key}">'
        f"<table{wide}>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>\n{caption}"
    )


def _line(line: Line, columns: list[Column], marked: list[bool], reference: str) -> str:
    pairs = list(zip(line.values, columns, strict=True))
    cells = "".join(_cell(value, column, reference, one) for (value, column), one in zip(pairs, marked, strict=True))
    kinds = ["paper"] * (line.kind == "paper") + ["without"] * all(value.mean is None for value in line.values)
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    return f'<tr{kind}><th scope="row">{escape(line.label)}</th>{cells}</tr>'


def _cell(value: Value, column: Column, reference: str, marked: bool) -> str:
    if value.missing:
        return f'<td class="missing" data-value=""><span aria-hidden="true">{MISSING}</span>' + (
            '<span class="hidden">missing</span></td>'
        )
    text = escape(number(value, column))
    if value.mean is None:
        counted = re.match(r"\d+", value.text)  # "3", "2 to 3", "10 of 11" sort as numbers
        return f'<td data-value="{counted.group()}">{text}</td>' if counted else f"<td>{text}</td>"
    deviation = spread(value, column)
    shown = f"<b>{text}</b>" if value.best else text
    tail = f' <span class="std">± {deviation}</span>' if deviation else ""
    direction = _direction(value, column)
    kind = f' class="{direction}"' if direction else ""
    mark = _MARKS[direction] if marked else ""
    return f'<td{kind} data-value="{value.mean:.6f}"{_hint(value, column, reference)}>{shown}{tail}{mark}</td>'


def _hint(value: Value, column: Column, reference: str) -> str:
    """Return the attribute for the tooltip of a cell: the seeds and the difference."""
    texts = []
    if len(value.values) > 1:
        texts.append("seeds: " + ", ".join(f"{one:.{column.decimals}f}" for one in value.values))
    if value.against is not None:
        texts.append(f"{value.against:+.{column.decimals}f} against {reference}")
    return f' title="{escape("; ".join(texts))}"' if texts else ""


def _direction(value: Value, column: Column) -> str:
    """Return "up" if a cell, as rounded, is better than the reference's, "down" if it is worse, else ""."""
    difference = value.mean if column.signed else value.against
    if difference is None or column.better == PLAIN or round(difference, column.decimals) == 0:
        return ""
    return "up" if (difference > 0) == (column.better == HIGH) else "down"
