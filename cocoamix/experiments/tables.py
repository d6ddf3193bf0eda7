"""Tables of means over seeds and datasets, and of differences from a baseline: their cells, and what is bold.

A new column is one more `Column`; the measures of its task have all metrics of the runs already.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from .pivots import by_seed, over_datasets
from .stats import compare, t_interval

HIGH, LOW = 1, -1
UNTESTED = "Nothing is bold: with one value for each method, no difference can be distinguished from noise."
_PAIRED = (
    "Differences are paired by dataset; on one dataset by seed. Bold: the 95 % t-interval does not contain 0. "
    "p: two-sided sign-flip permutation test. With n pairs it cannot be below 2/2^n: 0.250 for 3, 0.001 for 11."
)


@dataclass(frozen=True)
class Column:
    """A column: a measure of the runs, averaged over datasets. A row that lacks one of the datasets has no value."""

    key: str  # its name for programs, unique in its table
    title: str
    datasets: tuple[str, ...] = ()
    measure: str = ""  # the column of the pivot, if that is not the key
    better: int = HIGH
    decimals: int = 2

    @property
    def source(self) -> str:
        """The column of the pivot."""
        return self.measure or self.key


SEEDS = Column("seeds", "seeds")


@dataclass
class Cell:
    """A cell: a number with the text that is shown for it, or a text alone. An empty text is missing."""

    mean: float = math.nan
    std: float = math.nan
    n: int = 0  # number of seeds; 0 where datasets have different ones
    seeds: list[float] = field(default_factory=list)  # the values behind the mean
    text: str = ""
    spread: str = ""  # the deviation, as it is shown
    bold: bool = False


@dataclass
class Row:
    """A row: its cells by the key of their column."""

    cells: dict[str, Cell] = field(default_factory=lambda: defaultdict(Cell))
    remarks: list[str] = field(default_factory=list)
    published: bool = False  # numbers printed elsewhere, which are not ours


@dataclass
class Table:
    """A table, independent of the output format. Its rows have names of methods."""

    key: str
    title: str
    columns: list[Column]
    rows: dict[str, Row]
    caption: str = ""
    caveats: list[str] = field(default_factory=list)  # of all rows of ours


def over(columns: Iterable[Column], datasets: Iterable[str]) -> list[Column]:
    """Return columns that are averaged over datasets."""
    return [replace(column, datasets=tuple(datasets)) for column in columns]


@dataclass
class Measures:
    """The measures of the runs that share tables.

    Attributes:
        wide: A column per measure, indexed by method, dataset and seed.
        rows: The methods in the order of the tables.
        zero_shot: The methods whose one value holds for every seed.
        caveats: The caveats of the runs of a method on a dataset.
        differing: Returns why other methods cannot be compared with one on a dataset, such as other images.
    """

    wide: pd.DataFrame
    rows: list[str]
    zero_shot: set[str]
    caveats: Mapping[tuple[str, str], set[str]]
    differing: Callable[[str], Mapping[tuple[str, str], str]] = lambda row: {}
    _averages: dict[tuple[str, ...], pd.DataFrame] = field(default_factory=dict)

    def cells(self, column: Column) -> dict[str, Cell]:
        """Return the cells of the rows that have a mean: over datasets, of the means over seeds."""
        if column.datasets not in self._averages:
            self._averages[column.datasets] = over_datasets(self.wide, column.datasets)
        average = self._averages[column.datasets].xs(column.source, axis=1, level=1).dropna(subset="mean")
        seeds = by_seed(self.wide[[column.source]], column.datasets)[column.source].dropna()
        cells = {}
        for row in (row for row in self.rows if row in average.index):
            mean, std, n = average.loc[row, ["mean", "std", "n"]]
            text, spread = (f"{value:.{column.decimals}f}" for value in (mean, std))
            values = seeds[row].tolist() if n else []
            cells[row] = Cell(mean, std, int(n), values, text, "" if math.isnan(std) else spread)
        return cells

    def counts(self, columns: Iterable[Column]) -> dict[str, list[int]]:
        """Return the numbers of seeds of each row that has values: of the columns on each dataset, once and sorted."""
        present: dict[str, set[int]] = defaultdict(set)
        for column in columns:
            known = self.wide[column.source].dropna()
            known = known[known.index.isin(column.datasets, level="dataset")]
            for (row, _), count in known.groupby(level=["method", "dataset"]).size().items():
                present[row].add(count)
        return {row: sorted(present[row]) for row in self.rows if row in present}

    def caveats_of(self, row: str, columns: Iterable[Column]) -> set[str]:
        """Return the caveats of the runs of a row in some columns."""
        datasets = {dataset for column in columns for dataset in column.datasets}
        return {words for dataset in datasets for words in self.caveats.get((row, dataset), ())}

    def pairs(self, column: Column, row: str, other: str) -> tuple[list[float], str]:
        """Return paired differences of two rows, and whether they are by dataset or by seed.

        Several datasets are paired by dataset (means over shared seeds), because seeds of one dataset are not
        independent; a single dataset is paired by seed.
        """
        unlike = self.differing(other)
        datasets = [name for name in column.datasets if (row, name) not in unlike]
        first, second = (
            self._seeds.reindex([(name, column.source, dataset) for dataset in datasets]).to_numpy()
            for name in (row, other)
        )
        gaps = pd.DataFrame(first - second).dropna(how="all")
        if len(column.datasets) > 1:
            return gaps.mean(axis=1).tolist(), "dataset"
        if {row, other} <= self.zero_shot:  # both have one value, repeated for every seed
            gaps = gaps.mean(axis=1).to_frame()
        return gaps.stack().dropna().tolist(), "seed"

    @cached_property
    def _seeds(self) -> pd.DataFrame:
        """The values by method, measure and dataset, a column per seed. A zero-shot value holds for every seed."""
        cells = self.wide.rename_axis(columns="measure").stack().unstack("seed")
        cells = cells.reorder_levels(["method", "measure", "dataset"])
        single = cells.index.isin(self.zero_shot, level="method") & (cells.count(axis=1) == 1)
        return cells.where(~single, cells.bfill(axis=1).ffill(axis=1), axis=0)


# ---------------------------------------------------------------------------------------- tables of means


def fill(measures: Measures, columns: Sequence[Column], key: str, title: str, caption: str = "") -> Table | None:
    """Return the table of the columns in which some row has a mean; None if there is none."""
    cells = {column: measures.cells(column) for column in columns if column.source in measures.wide}
    shown = [column for column in cells if cells[column]]
    if not shown:
        return None
    counts = measures.counts(shown)
    table = Table(key, title, shown, {row: Row() for row in counts}, caption)
    eligible = _add_caveats(table, measures, shown)
    tested = False
    for column in shown:
        for row, cell in cells[column].items():
            table.rows[row].cells[column.key] = cell
        means = {row: cells[column][row].mean for row in eligible if row in cells[column]}
        bold, untested = _bold(measures, column, means)
        for row in untested:
            table.rows[row].remarks.append(f"{column.title}: too few seeds to test")
        for row in bold:
            table.rows[row].cells[column.key].bold = True
        tested |= bool(bold)
    if len(eligible) > 1 and not tested:
        table.caption = f"{caption} {UNTESTED}".strip()
    _add_seeds(table, counts, measures.zero_shot)
    return table


def _bold(measures: Measures, column: Column, means: Mapping[str, float]) -> tuple[set[str], list[str]]:
    """Return the rows that cannot be distinguished from the best, and those that could not be tested.

    Nothing is bold if no other row can be tested, or if one cannot be compared with the best at all.
    """
    # Among ties, a trained method has more pairs with the others than a zero-shot one.
    best = max(means, key=lambda row: (round(column.better * means[row], 9), row not in measures.zero_shot), default="")
    reasons = measures.differing(best)
    if any((row, dataset) in reasons for row in means for dataset in column.datasets):
        return set(), []
    pairs = {row: measures.pairs(column, best, row)[0] for row in means if row != best}
    # Without shared seeds on a dataset, the differences on the others say nothing of the average.
    known = {row: t_interval(gaps) for row, gaps in pairs.items() if len(gaps) >= max(2, len(column.datasets))}
    if not known:
        return set(), []
    level = 1e-9  # rounding errors of equal values are no difference
    alike = {row for row, (low, high) in known.items() if low <= level and high >= -level}
    bold = {best, *alike, *(row for row in means if means[row] == means[best])}
    return bold, [row for row in pairs if row not in known and row not in bold]


def _add_seeds(table: Table, counts: Mapping[str, Sequence[int]], zero_shot: set[str]) -> None:
    """Append the numbers of seeds, and mark trained methods that have fewer than others."""
    table.columns.append(SEEDS)
    most = max((numbers[0] for row, numbers in counts.items() if row not in zero_shot), default=0)
    for row, numbers in counts.items():
        ends = dict.fromkeys((numbers[0], numbers[-1]))
        table.rows[row].cells[SEEDS.key] = Cell(text=" to ".join(map(str, ends)))
        if row not in zero_shot and numbers[0] < most:
            table.rows[row].remarks.append("fewer seeds than other rows")


def _add_caveats(table: Table, measures: Measures, columns: Sequence[Column]) -> list[str]:
    """Make the caveats of all rows those of the table, and others remarks. Return the rows that may be bold."""
    caveats = {row: measures.caveats_of(row, columns) for row in table.rows}
    shared = set.intersection(*caveats.values())
    table.caveats = sorted(shared)
    for row, words in caveats.items():
        table.rows[row].remarks += sorted(words - shared)
    return [row for row, words in caveats.items() if words == shared]


# ---------------------------------------------------------------------------------------- differences


def differences(measures: Measures, baseline: str, columns: Sequence[Column], key: str, title: str) -> Table:
    """Return the differences of the other rows from a baseline."""
    shown = [
        Column(f"{kind}_{column.key}", f"{words} {column.title}" if kind == "d" else words)
        for column in columns
        for kind, words in (("d", "Δ"), ("ci", "95 % interval"), ("p", "p"))
    ]
    rows = {row: Row() for row in measures.rows if row != baseline}
    table = Table(key, title, [*shown, Column("pairs", "pairs")], rows, _PAIRED)
    _add_caveats(table, measures, columns)
    known = measures.caveats_of(baseline, columns)
    for name, row in rows.items():
        counted: dict[str, list[str]] = {}  # titles of columns by number of pairs
        for column in columns:
            gaps, unit = measures.pairs(column, name, baseline)
            if gaps:
                # A difference in caveats may be the cause of others.
                row.cells |= _difference(column.key, gaps, measures.caveats_of(name, columns) == known)
                counted.setdefault(f"{len(gaps)} {unit}{'s' * (len(gaps) != 1)}", []).append(column.title)
        texts = [f"{text} ({', '.join(titles)})" for text, titles in counted.items()]
        row.cells["pairs"] = Cell(text="; ".join(texts if len(texts) > 1 else counted))
    return table


def _difference(key: str, gaps: Sequence[float], comparable: bool) -> dict[str, Cell]:
    """Return the difference in a column, its interval and p."""
    result = compare(gaps)
    text = f"{round(result.difference, 2) + 0.0:+.2f}"  # a difference of -0.001 is "+0.00", not "-0.00"
    bold = comparable and (result.low > 0 or result.high < 0)
    interval = f"{result.low:+.2f} to {result.high:+.2f}" if np.isfinite(result.low) else ""
    p = "<0.001" if result.p < 0.001 else f"{result.p:.3f}"
    return {
        f"d_{key}": Cell(result.difference, n=result.pairs, text=text, bold=bold),
        f"ci_{key}": Cell(text=interval),
        f"p_{key}": Cell(result.p, n=result.pairs, text=p),
    }
