"""The figures of a report as files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cocoamix.drawing.charts import draw
from cocoamix.drawing.files import draw_files, write_files
from cocoamix.report.build import Report


def write(report: Report, folder: Path) -> None:
    """Write every figure of a report as SVG and PNG, in light and in dark colours, and as PDF for print."""
    for section in report.sections:
        for chart in section.charts:
            write_files(folder, draw_files(chart.key, partial(draw, chart), chart.title, pdf=True))
