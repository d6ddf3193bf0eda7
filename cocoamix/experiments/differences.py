"""Differences from a baseline: paired, with a 95 % t-interval and p of a sign-flip test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cocoamix.errors import UserError, nearest

from .frame import Frame
from .labels import not_comparable, show
from .names import simplify
from .stats import compare
from .tables import NEITHER, Column, Measures, Table, remark_caveats

_CAPTION = (
    "Differences are paired by dataset; on one dataset by seed. Bold: the 95 % t-interval does not contain 0. "
    "p: two-sided sign-flip permutation test. With n pairs it cannot be below 2/2^n: 0.250 for 3, 0.001 for 11."
)


class Baseline:
    """The method with which others are compared. A section may or may not have it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._known = not name
        self._labels: dict[str, None] = {}

    def compare(
        self, measures: Measures, part: Frame, columns: Sequence[Column], key: str, notes: list[str], what: str = ""
    ) -> Table | None:
        """Return the table of differences; None if the baseline is not among the methods.

        Args:
            measures: The measures of some runs.
            part: The frame of these runs.
            columns: The columns to compare.
            key: The key of the table.
            notes: Receives why rows are not compared.
            what: Which results are compared, for the title.
        """
        self._labels.update(dict.fromkeys(measures.rows))
        named = [label for label in measures.rows if label == self.name] or self._similar(part)
        if not self.name or not named:
            return None
        self._known = True
        if len(named) > 1:
            listed = ", ".join(named[1:])
            notes.append(f"--baseline {self.name} is {named[0]} here; it could also be {listed}. Give the full name.")
        if len(measures.rows) == 1:
            notes.append(f"There is no other method here to compare with {named[0]}.")
            return None
        title = f"Difference from {named[0]}" + (f", {what}" if what else "")
        refused = _not_comparable(part, named[0])
        notes += [f"{row} and {named[0]} are not compared on {name}: {why}." for (row, name), why in refused.items()]
        return differences(measures, named[0], columns, refused, key, title)

    def _similar(self, part: Frame) -> list[str]:
        """Return the methods whose name or trainer is spelled like the baseline."""
        trainers = dict(zip(part.runs["method"], part.runs["trainer"], strict=True))
        name = simplify(self.name)
        return [label for label, trainer in trainers.items() if name in (simplify(label), simplify(trainer))]

    def check(self) -> None:
        """Raise UserError if no section has the baseline."""
        if not self._known:
            labels = list(self._labels)
            raise UserError(
                f"--baseline {self.name}: no method has that name.{nearest(self.name, labels)} "
                f"Methods: {', '.join(labels) or 'none'}."
            )


def _not_comparable(part: Frame, baseline: str) -> dict[tuple[str, str], str]:
    """Return why methods cannot be compared with the baseline, by method and dataset."""
    first = part.runs.drop_duplicates(["method", "dataset", "subset"])
    known = {(run.dataset, run.subset): run for run in first.itertuples() if run.method == baseline}
    reasons: dict[tuple[str, str], str] = {}
    for run in first.itertuples():
        other = known.get((run.dataset, run.subset))
        for key, value, theirs in not_comparable(run, other) if other is not None else ():
            reasons.setdefault((str(run.method), str(run.dataset)), f"{key} is {show(value)} and {show(theirs)}")
    return reasons


def differences(
    measures: Measures,
    baseline: str,
    columns: Sequence[Column],
    refused: Mapping[tuple[str, str], str],
    key: str,
    title: str,
) -> Table:
    """Return the differences of the other rows from a baseline.

    Args:
        measures: The measures.
        baseline: The row to compare with.
        columns: The columns to compare.
        refused: Why a row cannot be compared with the baseline, by row and dataset.
        key: The key of the table.
        title: Its title.
    """
    others = [row for row in measures.rows if row != baseline]
    shown = [part for column in columns for part in _parts(column)]
    table = Table.empty(key, title, [*shown, Column("pairs", "pairs", better=NEITHER)], others, caption=_CAPTION)
    counted: dict[str, dict[str, list[str]]] = {row: {} for row in others}  # titles of columns by number of pairs
    for column in columns:
        cube = measures.cube(column)
        for row in others:
            excluded = [(row, dataset) in refused for dataset in column.datasets]
            own = np.where(np.array(excluded)[:, None], np.nan, cube)
            pairs, unit = measures.pairs(own, measures.rows.index(row), measures.rows.index(baseline))
            if pairs:
                _fill(table, row, column, pairs)
                text = f"{len(pairs)} {unit}{'s' * (len(pairs) != 1)}"
                counted[row].setdefault(text, []).append(column.title)
            elif any(excluded):
                table.words.loc[row, f"d_{column.key}"] = "not comparable"
    for row, titles in counted.items():
        texts = [f"{text} ({', '.join(names)})" for text, names in titles.items()]
        table.words.loc[row, "pairs"] = next(iter(titles), "") if len(titles) < 2 else "; ".join(texts)
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
