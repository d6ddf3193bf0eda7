"""Accuracy on base classes and on novel ones after each session."""

from __future__ import annotations

from collections.abc import Sequence

from cocoamix.drawing.chart import Chart, Series

from .rows import Row
from .tables import Seeds, Value, average, count_sessions

_PARTS = ("base", "novel")


def part_charts(rows: Sequence[Row], datasets: Sequence[str], key: str, title: str) -> list[Chart]:
    """Return a chart of curves for base classes and one for novel classes, averaged over datasets."""
    count = max(count_sessions(rows, dataset) for dataset in datasets)
    ticks = tuple(str(number) for number in range(count))
    charts = []
    for part, name in enumerate(_PARTS):
        found = [one for row in rows if (one := _series(row, datasets, part, count)) is not None]
        words = "; ".join(f"{one.label}: from {one.y[0]:.1f} to {one.y[-1]:.1f}" for one in found)
        about = f"{title}: {name} classes"
        charts.append(Chart(f"{key}-{name}", "curves", about, words, tuple(found), ticks, "session"))
    return charts


def _series(row: Row, datasets: Sequence[str], part: int, count: int) -> Series | None:
    values = [average([_by_seed(row, dataset, session, part) for dataset in datasets]) for session in range(count)]
    points: list[tuple[int, Value]] = [(session, value) for session, value in enumerate(values) if not value.missing]
    if not points:
        return None
    return Series(
        row.label,
        tuple(float(session) for session, _ in points),
        tuple(value.mean or 0.0 for _, value in points),
        tuple(value.std or 0.0 for _, value in points),
        tuple(value.values if value.n > 1 else () for _, value in points),
    )


def _by_seed(row: Row, dataset: str, session: int, part: int) -> Seeds:
    found: Seeds = {}
    for seed, run in row.by_seed(dataset, "all").items():
        value = run.session_parts[session][part] if session < len(run.session_parts) else None
        if value is not None:
            found[seed] = value
    return found
