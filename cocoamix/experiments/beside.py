"""Published numbers beside ours: as rows of our tables, and as tables of both with their differences."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .names import simplify, sort_datasets
from .published import AVERAGE, Matches
from .tables import NEITHER, Column, Table

DIFFERING = "not the paper's settings"  # the caveat of methods whose settings are those of no published row


def add_published(table: Table, matches: Matches) -> Table:
    """Append the published rows that have numbers for a table of ours."""
    tables = matches.rows.groupby(["place", "source_name"], sort=False) if len(matches.rows) else ()
    for (place, source), rows in tables:
        if rows["dataset"].eq(AVERAGE).all():
            continue  # averages alone are beside ours in a table of their own
        for method, own in rows.groupby("method", sort=False):
            numbers = {(row.dataset, row.column): row for row in own.itertuples()}
            cells = {column.key: numbers[_where(column)] for column in table.columns if _where(column) in numbers}
            if cells:
                values = {key: row.value for key, row in cells.items()}
                words = {key: _printed(row.value, row.spread, row.decimals) for key, row in cells.items()}
                # Several tables may have a method of one name.
                ends = ("published", f"published, {place}", f"{place} of {source}")
                labels = [f"{method} ({end})" for end in ends]
                label = next((label for label in labels if label not in table.rows), labels[-1])
                table.add_row(label, values, words, f"{place} of {source}")
    return table


def _where(column: Column) -> tuple[str, str]:
    """Return the dataset and the column of published numbers that a column of ours is compared with."""
    averaged = len(column.datasets) != 1 or column.key == "target"
    return AVERAGE if averaged else column.datasets[0], "accuracy" if column.measure == "all_accuracy" else column.key


def _printed(value: float, spread: float, decimals: int) -> str:
    return f"{value:.{decimals}f}" + ("" if np.isnan(spread) else f" ± {spread:.{decimals}f}")


def comparison_tables(matches: Matches, key: str) -> list[Table]:
    """Return our methods beside the published rows of equal settings: a row per dataset, or per method for averages."""
    tables, averages = [], []
    keys = ["method", "place", "source_name"]
    groups = matches.comparisons.groupby(keys, sort=False) if len(matches.comparisons) else ()
    for (method, place, source), rows in groups:
        if rows["dataset"].nunique() == 1:
            averages.append(rows.assign(row=f"{method} and {rows['published_method'].iloc[0]}"))
            continue
        title = f"{method} beside {rows['published_method'].iloc[0]} in {place} of {source}"
        tables.append(_comparison(rows.assign(row=rows["dataset"]), f"{key}-{simplify(method)}", title, "dataset"))
    for (place, source), rows in pd.concat(averages).groupby(keys[1:], sort=False) if averages else ():
        tables.append(_comparison(rows, f"{key}-{simplify(place)}", f"Beside {place} of {source}", "method"))
    return tables


def _comparison(rows: pd.DataFrame, key: str, title: str, first: str) -> Table:
    columns = [
        Column(f"{name}{suffix}", f"{name} {word}", better=NEITHER, signed=suffix == "_gap")
        for name in rows["column"].unique()
        for suffix, word in (("", "ours"), ("_published", "published"), ("_gap", "Δ"))
    ]
    labels = sort_datasets(rows["row"]) if first == "dataset" else list(rows["row"].unique())
    table = Table.empty(key, title, columns, labels, first=first, caption="Δ is ours minus the published number.")
    for row in rows.itertuples():
        keys = [row.column, f"{row.column}_published", f"{row.column}_gap"]
        table.mean.loc[row.row, keys] = [row.ours, row.published, row.difference]
        table.words.loc[row.row, keys[1]] = f"{row.published:.{row.decimals}f}"
    return table
