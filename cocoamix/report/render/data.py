"""The report for other programs: CSV with one line for each cell, and JSON with everything."""

from __future__ import annotations

import csv
import io
from typing import Any

from cocoamix.errors import printable
from cocoamix.io.spreadsheets import text_cell
from cocoamix.report.build import Report
from cocoamix.report.model.tables import Value


def render_csv(report: Report) -> str:
    """Return one line for each cell of each table; a missing cell has an empty mean."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["section", "table", "line", "kind", "column", "mean", "std", "n", "text", "best"])
    for section in report.sections:
        for table in section.tables:
            for line in table.lines:
                for value, column in zip(line.values, table.columns, strict=True):
                    numbers = ["" if x is None else repr(round(x, 6)) for x in (value.mean, value.std)]
                    texts = (section.title, table.title, line.label, line.kind, column.title)
                    row = [*map(text_cell, texts), *numbers]
                    writer.writerow([*row, value.n or "", text_cell(value.text), int(value.best)])
    return file.getvalue()


def render_json(report: Report) -> dict[str, Any]:
    """Return the report as plain data."""
    return {
        "folders": report.folders,
        "sections": [
            {
                "key": section.key,
                "title": section.title,
                "notes": section.notes,
                "tables": [
                    {
                        "key": table.key,
                        "title": table.title,
                        "caption": table.caption,
                        "lines": [
                            {
                                "label": line.label,
                                "kind": line.kind,
                                **{
                                    column.key: _value(value)
                                    for value, column in zip(line.values, table.columns, strict=True)
                                },
                            }
                            for line in table.lines
                        ],
                    }
                    for table in section.tables
                ],
            }
            for section in report.sections
        ],
        "notes": report.notes,
        "left_out": [
            {"folder": problem.folder, "kind": problem.kind, "reason": problem.reason} for problem in report.problems
        ],
        "runs": [
            {
                "folder": printable(run.folder),
                "read_from": run.read_from,
                "task": run.task,
                "trainer": run.trainer,
                "config": printable(run.config),
                "variant": printable(run.variant),
                "dataset": run.dataset,
                "subset": run.subset,
                "shots": run.shots,
                "seed": run.seed,
                "fingerprint": run.fingerprint,
                "metrics": run.metrics,
                "sessions": list(run.sessions),
            }
            for run in report.runs
        ],
    }


def _value(value: Value) -> Any:
    if value.missing:
        return None
    if value.mean is None:
        return value.text
    return {"mean": value.mean, "std": value.std, "n": value.n, "seeds": list(value.values), "best": value.best}
