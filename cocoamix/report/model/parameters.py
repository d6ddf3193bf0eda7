"""Accuracy against the number of trained parameters."""

from __future__ import annotations

from collections.abc import Sequence

from cocoamix.drawing.chart import Chart, Series

from .rows import Row
from .stats import mean
from .tables import Line, Table, Value

_COUNT = "trained parameters"


def count_parameters(row: Row, datasets: Sequence[str]) -> float | None:
    """Return the trained parameters of a method, averaged over datasets; None if a run does not state them."""
    counts = [run.parameters for dataset in datasets for run in row.by_seed(dataset, "base").values()]
    known = [count for count in counts if count is not None]
    return mean(known) if known and len(known) == len(counts) else None


def parameters_chart(table: Table, rows: Sequence[Row], datasets: Sequence[str], key: str) -> Chart:
    """Return H over the number of trained parameters for each line of a table of base, new and H."""
    series = [
        Series(line.label, (count,), (h.mean or 0.0,), (h.std or 0.0,), size=(count,))
        for line, count, h in _counted(table, rows, datasets)
    ]
    words = "; ".join(f"{one.label}: {one.x[0]:,.0f} parameters, H {one.y[0]:.1f}" for one in series)
    trained = [one for one in series if one.x[0]]
    return Chart(
        key,
        "bubbles",
        f"{table.title}: H and {_COUNT}",
        words,
        tuple(series) if len(trained) > 1 else (),
        x_label=_COUNT,
        y_label="H (%)",
        x_log=True,
    )


def _counted(table: Table, rows: Sequence[Row], datasets: Sequence[str]) -> list[tuple[Line, float, Value]]:
    """Return the lines whose number of parameters and H are known, with both values."""
    place = [column.key for column in table.columns].index("H")
    by_label = {row.label: row for row in rows}
    found = []
    for line in table.lines:
        count = count_parameters(by_label[line.label], datasets) if line.kind == "own" else None
        if count is not None and not line.values[place].missing:
            found.append((line, count, line.values[place]))
    return found
