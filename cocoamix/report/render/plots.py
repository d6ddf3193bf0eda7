"""The figures of a report as files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from cocoamix.drawing.charts import draw
from cocoamix.drawing.files import draw_files, write_files
from cocoamix.report.build import Report


def write(report: Report, folder: Path) -> dict[str, str]:
    """Write every figure of a report as SVG and PNG, in light and in dark colours, and as PDF for print.

    Returns:
        The light SVG files by the keys of the charts, which a page can use instead of drawing them again.
    """
    drawn = {}
    for section in report.sections:
        for chart in section.charts:
            contents = draw_files(chart.key, partial(draw, chart), chart.title, pdf=True)
            write_files(folder, contents)
            drawn[chart.key] = contents[f"{chart.key}.svg"].decode()
    return drawn
