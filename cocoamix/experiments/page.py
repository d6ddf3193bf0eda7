"""The report as one self-contained HTML page. The template escapes every name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cocoamix import __version__
from cocoamix.errors import printable

from . import render
from .tables import Table

if TYPE_CHECKING:
    from .report import Report

_COLUMN = 300  # points


def write(report: Report, figures: Mapping[str, list[tuple[str, str]]] | None = None) -> str:
    """Return the page.

    Args:
        report: The report.
        figures: Titles and SVG files of the figures of each section.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["printable"] = printable
    environment.tests["broad"] = _is_broad
    template = environment.get_template("page.html.j2")
    return template.render(
        report=report,
        figures=figures or {},
        title=_title(report),
        date=_date(),
        version=__version__,
        legend=render.LEGEND,
        left_out=render.left_out(report),
        captions=render.captions,
        rows=_rows,
    )


def _is_broad(svg: str) -> bool:
    """Return whether a figure is wider than a column, so that its text would be small in one."""
    width = re.search(r'width="([\d.]+)pt"', svg)
    return width is not None and float(width[1]) > _COLUMN


def _title(report: Report) -> str:
    names = ["the tiny CLIP" if name == "tiny" else name for name in report.backbones]
    return "Results" + (f" with {', '.join(names[:3])}" if names else "") + (", ..." if len(names) > 3 else "")


def _date() -> str:
    """Return today's date, or that of SOURCE_DATE_EPOCH for reproducible output."""
    stamp = os.environ.get("SOURCE_DATE_EPOCH", "")
    day = datetime.fromtimestamp(int(stamp), timezone.utc) if stamp.isdigit() else datetime.now()
    return f"{day.day} {day:%B %Y}"


def _rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table. Those without any number, such as methods without an average, come last."""
    letters = render.remark_letters(table)
    return [
        {
            "label": row,
            "remarks": [letters[text] for text in table.remarks.get(row, ())],
            "published": row in table.published,
            "cells": [_cell(table, row, column.key, *render.parts(table, row, column)) for column in table.columns],
        }
        for row in sorted(table.rows, key=lambda row: bool(table.mean.loc[row].isna().all()))
    ]


def _cell(table: Table, row: str, key: str, text: str, spread: str) -> dict[str, Any]:
    mean, seeds = table.mean.at[row, key], table.seeds.get((row, key), [])
    counted = re.match(r"\d+", text) if np.isnan(mean) else None  # "3", "2 to 3", "10 of 11" sort as numbers
    value = counted.group() if counted else "" if np.isnan(mean) else f"{mean:.6f}"
    hint = "seeds: " + ", ".join(f"{seed:.2f}" for seed in seeds) if len(seeds) > 1 else ""
    return {"text": text, "spread": spread, "bold": table.bold.at[row, key], "value": value, "hint": hint}
