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
from .tables import Column, Table

if TYPE_CHECKING:
    from .report import Report


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
    stamp = os.environ.get("SOURCE_DATE_EPOCH", "")  # for reproducible output
    day = datetime.fromtimestamp(int(stamp), timezone.utc) if stamp.isdigit() else datetime.now()
    return environment.get_template("page.html.j2").render(
        report=report,
        figures=figures or {},
        title="Results" + (f" with {', '.join(report.backbones)}" if report.backbones else ""),
        date=f"{day.day} {day:%B %Y}",
        version=__version__,
        render=render,
        rows=_rows,
    )


def _rows(table: Table) -> list[dict[str, Any]]:
    """Return the rows of a table. Those without any number, such as methods without an average, come last."""
    letters = render.remark_letters(table)
    return [
        {
            "label": row,
            "remarks": [letters[text] for text in table.remarks.get(row, ())],
            "published": row in table.published,
            "cells": [_cell(table, row, column) for column in table.columns],
        }
        for row in sorted(table.rows, key=lambda row: bool(table.mean.loc[row].isna().all()))
    ]


def _cell(table: Table, row: str, column: Column) -> dict[str, Any]:
    text, spread = render.parts(table, row, column)
    mean, _, _, _, bold = table.cell(row, column.key)
    counted = re.match(r"\d+", text)  # "3", "2 to 3" and "11 datasets" sort as numbers
    value = f"{mean:.6f}" if not np.isnan(mean) else counted.group() if counted else ""
    seeds = [f"{seed:.2f}" for seed in table.seeds.get((row, column.key), [])]
    return {"text": text, "spread": spread, "bold": bold, "value": value, "seeds": seeds[1:] and seeds}
