"""A summary of base-to-new results in Markdown that also reads well on a terminal: averages, then each dataset."""

from __future__ import annotations

from collections.abc import Sequence

from cocoamix.report.model.tables import H_OF_MEANS, METRICS, SEEDS, Line, Section, Table

from .cells import MISSING, plain
from .markdown import escape, layout, render_table


def render(section: Section, what: str, setting: str) -> str:
    """Return a summary of a base-to-new section, or "" if it has no average over datasets.

    Args:
        section: The section. Its tables of confidence are left out.
        what: The part of the title before the number of datasets.
        setting: The part of the title after it.
    """
    average = next((table for table in section.tables if table.key == f"{section.key}-average"), None)
    if average is None:
        return ""
    datasets = [table for table in section.tables if table.columns == [*METRICS, H_OF_MEANS, SEEDS]]
    others = [table for table in section.tables if table is not average and table not in datasets]
    parts = [f"{what}, average over {len(datasets)} datasets, {setting}", average_table(average)]
    parts += ["Each dataset:", dataset_table(datasets)]
    for table in others:
        if "-confidence" not in table.key:
            parts += [escape(table.title), render_table(table)]
    return "\n\n".join([*parts, *section.notes]) + "\n"


def average_table(table: Table) -> str:
    """Return base, new and H of each method, averaged over the datasets, as mean ± deviation over seeds."""
    lines = [[table.first, *(column.title for column in METRICS)]]
    lines += [[line.label, *map(plain, line.values[: len(METRICS)], METRICS)] for line in table.lines]
    return layout(lines)


def dataset_table(tables: Sequence[Table]) -> str:
    """Return base / new of each method on each dataset, means over seeds."""
    found = [{line.label: _pair(line) for line in table.lines} for table in tables]
    labels = dict.fromkeys(label for by_label in found for label in by_label)
    lines = [["base / new", *(table.title for table in tables)]]
    lines += [[label, *(by_label.get(label, MISSING) for by_label in found)] for label in labels]
    return layout(lines)


def _pair(line: Line) -> str:
    return " / ".join(MISSING if value.mean is None else f"{value.mean:.1f}" for value in line.values[:2])
