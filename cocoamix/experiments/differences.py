"""Differences from a baseline: paired, with a 95 % t-interval and p of a sign-flip test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from .frame import Frame
from .labels import not_comparable, show
from .names import simplify
from .stats import compare
from .tables import NEITHER, Column, Measures, Table, remark_caveats

_CAPTION = (
    "Differences are paired by dataset; on one dataset by seed. Bold: the 95 % t-interval does not contain 0. "
    "p: two-sided sign-flip permutation test. With n pairs it cannot be below 2/2^n: 0.250 for 3, 0.001 for 11."
)


def find_baselines(name: str, runs: pd.DataFrame) -> list[str]:
    """Return the method with that name, or else those whose name or trainer is spelled like it."""
    trainers = dict(zip(runs["method"], runs["trainer"], strict=True))
    if not name or name in trainers:
        return [name] if name else []
    spelled = simplify(name)
    return [label for label, trainer in trainers.items() if spelled in (simplify(label), simplify(trainer))]


def differing_runs(part: Frame, baseline: str) -> dict[tuple[str, str], str]:
    """Return why methods cannot be compared with the baseline, by method and dataset."""
    first = part.runs.drop_duplicates(["method", "dataset", "subset"])
    known = {(run.dataset, run.subset): run for run in first.itertuples() if run.method == baseline}
    reasons: dict[tuple[str, str], str] = {}
    for run in first.itertuples():
        other = known.get((run.dataset, run.subset))
        for key, value, theirs in not_comparable(run, other) if other is not None else ():
            reasons.setdefault((str(run.method), str(run.dataset)), f"{key} is {show(value)} and {show(theirs)}")
    return reasons


def differences(measures: Measures, baseline: str, columns: Sequence[Column], key: str, title: str) -> Table:
    """Return the differences of the other rows from a baseline.

    Args:
        measures: The measures, without those that cannot be compared.
        baseline: The row to compare with.
        columns: The columns to compare.
        key: The key of the table.
        title: Its title.
    """
    others = [row for row in measures.rows if row != baseline]
    shown = [part for column in columns for part in _parts(column)]
    table = Table.empty(key, title, [*shown, Column("pairs", "pairs", better=NEITHER)], others, caption=_CAPTION)
    for row in others:
        counted: dict[str, list[str]] = {}  # titles of columns by number of pairs
        for column in columns:
            pairs, unit = measures.pairs(column, row, baseline)
            if pairs:
                _fill(table, row, column, pairs)
                counted.setdefault(f"{len(pairs)} {unit}{'s' * (len(pairs) != 1)}", []).append(column.title)
        texts = [f"{text} ({', '.join(titles)})" for text, titles in counted.items()]
        table.words.loc[row, "pairs"] = "; ".join(texts if len(texts) > 1 else counted)
    remark_caveats(table, measures)
    for row in others:  # a difference in caveats may be its cause
        if measures.caveats_of(row, columns) != measures.caveats_of(baseline, columns):
            table.bold.loc[row] = False
    return table


def _parts(column: Column) -> list[Column]:
    """Return the columns of the difference in a column, its interval and p."""
    return [
        Column(f"d_{column.key}", f"Δ {column.title}", column.datasets, better=column.better, signed=True),
        Column(f"ci_{column.key}", "95 % interval", better=NEITHER),
        Column(f"p_{column.key}", "p", better=NEITHER, decimals=3),
    ]


def _fill(table: Table, row: str, column: Column, pairs: Sequence[float]) -> None:
    result = compare(pairs)
    for name, value in ((f"d_{column.key}", result.difference), (f"p_{column.key}", result.p)):
        table.mean.loc[row, name], table.n.loc[row, name] = value, result.pairs
    if np.isfinite(result.low):
        table.words.loc[row, f"ci_{column.key}"] = f"{result.low:+.2f} to {result.high:+.2f}"
        table.bold.loc[row, f"d_{column.key}"] = result.low > 0 or result.high < 0
