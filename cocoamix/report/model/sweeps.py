"""Sweeps of one setting, found in the configurations of the runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cocoamix.config import roles
from cocoamix.drawing.chart import Chart, Series

from .rows import Row, show
from .tables import METRICS, Column, Line, Table, average, measure


def find_sweeps(rows: Sequence[Row], datasets: Sequence[str], key: str, notes: list[str]) -> list[tuple[Table, Chart]]:
    """Return a table and a chart for each numeric trainer setting in which rows differ, all else being equal.

    Args:
        rows: The rows.
        datasets: The datasets to average over.
        key: The start of the keys of the tables and charts.
        notes: The list to which notes on rows that were left out are added.
    """
    settings = {id(row): found for row in rows if (found := _settings(row, datasets))}
    candidates: dict[str, None] = {}
    for found in settings.values():
        for name, value in found.items():
            if name.startswith("TRAINER.") and isinstance(value, float):
                candidates[name] = None
    sweeps = []
    for name in sorted(candidates):
        groups: dict[Any, list[tuple[float, Row]]] = defaultdict(list)
        for row in rows:
            found = settings.get(id(row), {})
            if name in found:
                others = tuple(sorted((k, repr(v)) for k, v in found.items() if k != name))
                # A sweep compares models after the same epoch.
                epochs = frozenset(run.earlier_epoch for run in row.runs)
                groups[(row.trainer, others, epochs)].append((found[name], row))
        for identity, group in groups.items():  # `auto` has no place among numbers
            groups[identity] = [one for one in group if isinstance(one[0], float)]
            if len({value for value, _ in groups[identity]}) > 1:
                notes += [
                    f"{row.label} is left out of the sweep of {name}, because its value is {show(value)}, not a number."
                    for value, row in group
                    if not isinstance(value, float)
                ]
        several = [group for group in groups.values() if len({value for value, _ in group}) > 1]
        for number, group in enumerate(several, start=1):
            tail = f"-{number}" if len(several) > 1 else ""
            if not _shared(group, datasets):
                continue
            sweeps.append(_sweep(name, sorted(group, key=lambda one: one[0]), datasets, key + tail))
    return sweeps


def _settings(row: Row, datasets: Sequence[str]) -> dict[str, Any]:
    """Return the settings of the row's training run on the first dataset."""
    for dataset in datasets:
        runs = row.by_seed(dataset, "base") or row.by_seed(dataset, "new")
        if runs:
            return next(iter(runs.values())).settings
    return {}


def _shared(group: Sequence[tuple[float, Row]], datasets: Sequence[str]) -> list[str]:
    return [one for one in datasets if all(row.by_seed(one, "base") or row.by_seed(one, "new") for _, row in group)]


def _sweep(name: str, group: Sequence[tuple[float, Row]], datasets: Sequence[str], key: str) -> tuple[Table, Chart]:
    symbol = roles.symbol(name)
    # Drop the configuration from the label, and the value that a plan with a sweep adds to the name.
    method = group[0][1].label.split(f", {name.rsplit('.', 1)[-1]} ")[0].split(" (")[0].split(" [")[0]
    # All points must be over the same datasets; otherwise the curve would reflect which datasets were run.
    datasets = _shared(group, datasets)
    lines, points = [], []
    for value, row in group:
        measures = [measure(row, dataset) for dataset in datasets]
        averages = [average([one[column.key] for one in measures]) for column in METRICS]
        lines.append(Line(show(value), list(averages)))
        points.append((value, averages))
    where = datasets[0] if len(datasets) == 1 else f"average over {len(datasets)} datasets"
    title = f"{method}: sweep of {symbol} ({where})"
    columns = [Column(column.key, column.title) for column in METRICS]
    table = Table(f"{key}-sweep-{symbol}", title, columns, lines, first=symbol, caption=f"{symbol} is {name}.")
    series = []
    for place, column in enumerate(METRICS):
        shown = [(x, values[place]) for x, values in points if values[place].mean is not None]
        series.append(
            Series(
                column.title,
                tuple(x for x, _ in shown),
                tuple(value.mean or 0.0 for _, value in shown),
                tuple(value.std or 0.0 for _, value in shown),
                tuple(value.values if value.n > 1 else () for _, value in shown),
            )
        )
    words = "; ".join(
        f"{symbol} {show(x)}: "
        + ", ".join(f"{c.title} {v.mean:.1f}" for c, v in zip(METRICS, values, strict=True) if v.mean is not None)
        for x, values in points
    )
    return table.mark_best(), Chart(f"{key}-chart-{symbol}", "curves", title, words, tuple(series), x_label=symbol)
