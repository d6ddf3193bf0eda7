"""The report as one page that needs nothing else: no network, no other file."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from cocoamix.drawing.chart import Chart
from cocoamix.drawing.charts import to_inline_svg, variables
from cocoamix.report.build import Report
from cocoamix.report.model.tables import Column, Line, Section, Table, Value

from .cells import LEGEND, MISSING, number, spread

_HERE = Path(__file__).parent
# The page may run its own script and show its own styles; it can load nothing.
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


def render(report: Report) -> str:
    """Return the page."""
    links = "".join(f'<li><a href="#{one.key}">{escape(one.title)}</a></li>' for one in report.sections)
    count = len(report.runs)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<link rel="icon" href="data:,">',
            "<title>Results</title>",
            f"<style>\n{_styles()}</style>",
            "</head>",
            "<body>",
            "<header>",
            "<h1>Results</h1>",
            f'<p class="lead">{count} run{"s" * (count != 1)} from {escape(", ".join(report.folders))}. '
            f"{LEGEND}; bold is the best of a column.</p>",
            f'<nav aria-label="Sections"><ul>{links}</ul></nav>' if len(report.sections) > 1 else "",
            "</header>",
            "<main>",
            _notices(report),
            *(_section(section) for section in report.sections),
            "</main>",
            '<div id="spoken" class="hidden" aria-live="polite"></div>',
            f"<script>\n{(_HERE / 'page.js').read_text(encoding='utf-8')}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _styles() -> str:
    css = (_HERE / "page.css").read_text(encoding="utf-8")
    for mark, place in (("/* colours */", 0), ("/* dark colours */", 1)):
        values = " ".join(f"--{name}: {pair[place]};" for name, pair in variables().items())
        css = css.replace(mark, values)
    return css


def _notices(report: Report) -> str:
    parts = []
    if report.notes:
        parts.append(_notice("Read this first", report.notes))
    if report.problems:
        listed = [f"{problem.folder}: {problem.reason}" for problem in report.problems]
        parts.append(_notice(f"Left out ({len(listed)})", listed))
    return "\n".join(parts)


def _notice(title: str, texts: list[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<section class="notice"><h2>{escape(title)}</h2><ul>{items}</ul></section>'


def _section(section: Section) -> str:
    parts = [f'<section id="{section.key}">', f"<h2>{escape(section.title)}</h2>"]
    parts += [f"<p>{escape(note)}</p>" for note in section.notes]
    if section.charts:
        figures = "\n".join(_figure(chart) for chart in section.charts)
        parts.append(f'<div class="charts">\n{figures}\n</div>')
    parts += [_table(table) for table in section.tables]
    return "\n".join([*parts, "</section>"])


def _figure(chart: Chart) -> str:
    svg = to_inline_svg(chart).replace("<svg", f'<svg role="img" aria-label="{escape(chart.alt)}"', 1)
    name = escape(f"Figure: {chart.title}")
    return f'<figure><div class="plot" tabindex="0" role="region" aria-label="{name}">{svg}</div></figure>'


def _table(table: Table) -> str:
    heads = "".join(
        f'<th scope="col" aria-sort="none"><button type="button">{escape(title)}</button></th>'
        for title in [table.first, *(column.title for column in table.columns)]
    )
    lines = "\n".join(_line(line, table.columns) for line in table.lines)
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    wide = ' class="wide"' if len(table.columns) > 8 else ""
    return (
        f'<h3 id="{table.key}">{escape(table.title)}</h3>\n{caption}'
        f'<div class="scroll" tabindex="0" role="region" aria-labelledby="{table.key}">'
        f"<table{wide}>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )


def _line(line: Line, columns: list[Column]) -> str:
    cells = "".join(_cell(value, column) for value, column in zip(line.values, columns, strict=True))
    kind = ' class="paper"' if line.kind == "paper" else ""
    return f'<tr{kind}><th scope="row">{escape(line.label)}</th>{cells}</tr>'


def _cell(value: Value, column: Column) -> str:
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
    listed = ", ".join(f"{one:.{column.decimals}f}" for one in value.values)
    seeds = f' title="seeds: {listed}"' if len(value.values) > 1 else ""
    tail = f' <span class="std">± {deviation}</span>' if deviation else ""
    return f'<td data-value="{value.mean:.6f}"{seeds}>{shown}{tail}</td>'
