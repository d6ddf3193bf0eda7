"""Tables of means over seeds and datasets: their columns, their cells, what is bold, and which remarks they need.

A table is made by `fill` from measures by method, dataset and seed, and from a list of columns. A new column is one
more `Column`; the measures of its task have all metrics of the runs already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from .pivots import by_seed, over_datasets
from .stats import t_interval

HIGH, LOW, NEITHER = 1, -1, 0
UNTESTED = "Nothing is bold: with one value for each method, no difference can be distinguished from noise."


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        key: Its name for programs, unique in its table.
        title: Its name for readers.
        datasets: What it is averaged over. A method that lacks one of them has no value.
        measure: The column of the pivot; its key, if empty.
        better: Whether HIGH or LOW values are better, or NEITHER.
        decimals: The number of decimals that are shown.
        signed: Whether a plus sign is shown.
    """

    key: str
    title: str
    datasets: tuple[str, ...] = ()
    measure: str = ""
    better: int = HIGH
    decimals: int = 2
    signed: bool = False

    @property
    def source(self) -> str:
        """The column of the pivot."""
        return self.measure or self.key


SEEDS = Column("seeds", "seeds", better=NEITHER)


@dataclass(eq=False)
class Table:
    """A table, independent of the output format. Its frames have a row per label and a column per key."""

    key: str
    title: str
    columns: list[Column]
    mean: pd.DataFrame
    std: pd.DataFrame
    n: pd.DataFrame  # number of seeds; 0 where datasets have different ones
    words: pd.DataFrame  # shown instead of a number
    bold: pd.DataFrame
    seeds: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # the values behind a mean
    caption: str = ""
    first: str = "method"
    remarks: dict[str, list[str]] = field(default_factory=dict)  # by label
    caveats: list[str] = field(default_factory=list)  # of all rows of ours
    published: set[str] = field(default_factory=set)  # labels of printed numbers, which are not ours

    @classmethod
    def empty(cls, key: str, title: str, columns: Sequence[Column], rows: Iterable[str], **more: Any) -> Table:
        """Return a table without values."""
        labels, keys = list(rows), [column.key for column in columns]
        mean, std, n, bold = (pd.DataFrame(start, index=labels, columns=keys) for start in (np.nan, np.nan, 0, False))
        words = pd.DataFrame("", index=labels, columns=keys, dtype=object)
        return cls(key, title, list(columns), mean, std, n, words, bold, **more)

    @property
    def rows(self) -> list[str]:
        """The labels of the rows."""
        return [str(label) for label in self.mean.index]

    @property
    def titles(self) -> list[str]:
        """The titles of the columns."""
        return [column.title for column in self.columns]

    def cell(self, row: str, key: str) -> tuple[float, float, int, str, bool]:
        """Return mean, deviation, number of seeds and words of a cell, and whether it is bold."""
        mean, std, words = self.mean.at[row, key], self.std.at[row, key], self.words.at[row, key]
        return float(mean), float(std), int(self.n.at[row, key]), str(words), bool(self.bold.at[row, key])

    def add(self, column: Column, mean: Any = np.nan, words: Any = "", n: Any = 0) -> None:
        """Add a column whose values are not measured but follow from others, before the number of seeds."""
        place = len(self.columns) - any(other.key == SEEDS.key for other in self.columns)
        self.columns.insert(place, column)
        self.mean[column.key], self.std[column.key], self.n[column.key] = mean, np.nan, n
        self.words[column.key], self.bold[column.key] = words, False

    def add_row(self, label: str, mean: Mapping[str, float], words: Mapping[str, str], remark: str) -> None:
        """Append a row of published numbers. It is never bold, and neither are rows with caveats beside it."""
        if label in self.rows:
            return
        for frame, values, missing in ((self.mean, mean, np.nan), (self.words, words, "")):
            frame.loc[label] = [values.get(column.key, missing) for column in self.columns]
        self.std.loc[label], self.n.loc[label], self.bold.loc[label] = np.nan, 0, False
        if self.caveats:
            self.bold.loc[:] = False
        self.published.add(label)
        self.remarks[label] = [remark]


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

    def __post_init__(self) -> None:
        self._averages: dict[tuple[str, ...], pd.DataFrame] = {}
        self._by_seed: dict[str, pd.DataFrame] = {}

    def average(self, column: Column) -> pd.DataFrame:
        """Return mean, std, n and the seeds' averages of a column by method."""
        if column.datasets not in self._averages:
            self._averages[column.datasets] = over_datasets(self.wide, column.datasets)
        average = self._averages[column.datasets].xs(column.source, axis=1, level=1)
        seeds = by_seed(self.wide[[column.source]], column.datasets)[column.source].dropna()
        return average.assign(seeds=seeds.groupby(level="method").agg(list)).reindex(self.rows)

    def counts(self, columns: Iterable[Column]) -> dict[str, list[int]]:
        """Return the numbers of seeds of each row that has values: of each column on each dataset, once and sorted."""
        present = {row: set[int]() for row in self.rows}
        for column in columns:
            counts = self._counts.get(column.source, pd.Series(dtype=int))
            for (row, dataset), count in counts[counts > 0].items():
                if dataset in column.datasets and row in present:
                    present[row].add(int(count))
        return {row: sorted(found) for row, found in present.items() if found}

    @cached_property
    def _counts(self) -> pd.DataFrame:
        return self.wide.groupby(level=["method", "dataset"]).count()

    def caveats_of(self, row: str, columns: Iterable[Column]) -> set[str]:
        """Return the caveats of the runs of a row in some columns."""
        datasets = {dataset for column in columns for dataset in column.datasets}
        return {words for dataset in datasets for words in self.caveats.get((row, dataset), ())}

    def pairs(self, column: Column, row: str, other: str) -> tuple[list[float], str]:
        """Return paired differences of two rows, and whether they are by dataset or by seed.

        Several datasets are paired by dataset (means over shared seeds), because seeds of one dataset are not
        independent; a single dataset is paired by seed.
        """
        first, second = (self._seeds_of(column, name) for name in (row, other))
        gaps = (first - second).dropna(how="all")
        if {row, other} <= self.zero_shot:
            gaps = gaps.bfill(axis=1).iloc[:, :1]  # both have one value, repeated for every seed
        if len(column.datasets) == 1:
            return gaps.stack().dropna().tolist(), "seed"
        return gaps.mean(axis=1).tolist(), "dataset"

    def _seeds_of(self, column: Column, row: str) -> pd.DataFrame:
        """Return the values of a row by dataset and seed; the one value of a zero-shot method for every seed."""
        if column.source not in self._by_seed:
            cells = self.wide[column.source].unstack("seed")
            single = cells.index.isin(self.zero_shot, level="method") & cells.count(axis=1).eq(1)
            filled = cells[single].bfill(axis=1).ffill(axis=1)
            self._by_seed[column.source] = pd.concat([cells[~single], filled])
        cells = self._by_seed[column.source]
        return cells.reindex([(row, dataset) for dataset in column.datasets]).droplevel("method")


# ---------------------------------------------------------------------------------------- tables of means


def fill(measures: Measures, columns: Sequence[Column], key: str, title: str, caption: str = "") -> Table | None:
    """Return the table of the columns in which some row has a mean; None if there is none.

    A cell is the mean over datasets of the means over seeds, as from `pivots.over_datasets`.
    """
    averages = {column: measures.average(column) for column in columns if column.source in measures.wide}
    averages = {column: average for column, average in averages.items() if average["mean"].notna().any()}
    if not averages:
        return None
    counts = measures.counts(averages)
    table = Table.empty(key, title, list(averages), counts, caption=caption)
    eligible = remark_caveats(table, measures)
    tested = False
    for column, average in averages.items():
        average = average.loc[table.rows]
        for frame, name in ((table.mean, "mean"), (table.std, "std"), (table.n, "n")):
            frame[column.key] = average[name].fillna(0).astype(int) if name == "n" else average[name]
        table.seeds |= {(row, column.key): seeds for row, seeds in average["seeds"][average["n"] > 0].items()}
        bold, untested = _bold(measures, column, average["mean"][eligible].dropna())
        for row in untested if bold else ():
            table.remarks.setdefault(row, []).append(f"{column.title}: too few seeds to test")
        table.bold[column.key] = table.mean.index.isin(bold)
        tested |= bool(bold)
    if len(eligible) > 1 and not tested:
        table.caption = f"{table.caption} {UNTESTED}".strip()
    _add_seeds(table, counts, measures.zero_shot)
    return table


def _bold(measures: Measures, column: Column, means: pd.Series) -> tuple[set[str], list[str]]:
    """Return the rows that cannot be distinguished from the best, and those that could not be tested.

    Nothing is bold if no other row can be tested, or if one cannot be compared with the best at all.
    """
    if len(means) < 2 or not column.better:
        return set(), []
    # Among ties, a trained method has more pairs with the others than a zero-shot one.
    best = max(means.index, key=lambda row: (round(column.better * means[row], 9), row not in measures.zero_shot))
    reasons = measures.differing(best)
    if any((row, dataset) in reasons for row in means.index for dataset in column.datasets):
        return set(), []
    pairs = {row: measures.pairs(column, best, row)[0] for row in means.index if row != best}
    # Without shared seeds on a dataset, the differences on the others say nothing of the average.
    enough = {row: gaps for row, gaps in pairs.items() if len(gaps) >= max(2, len(column.datasets))}
    known = {row: t_interval(gaps) for row, gaps in enough.items()}
    level = 1e-9  # rounding errors of equal values are no difference
    alike = {row for row, (low, high) in known.items() if low <= level and high >= -level}
    if not known:
        return set(), []
    bold = {best, *alike, *means.index[means == means[best]]}
    return bold, [row for row in pairs if row not in known and row not in bold]


def _add_seeds(table: Table, counts: Mapping[str, Sequence[int]], zero_shot: set[str]) -> None:
    """Append the numbers of seeds, and mark trained methods that have fewer than others."""
    ends = [dict.fromkeys((found[0], found[-1])) for found in counts.values()]
    table.add(SEEDS, words=[" to ".join(map(str, found)) for found in ends])
    fewest = {row: found[0] for row, found in counts.items() if row not in zero_shot}
    for row, count in fewest.items():
        if count < max(fewest.values()):
            table.remarks.setdefault(row, []).append("fewer seeds than other rows")


def remark_caveats(table: Table, measures: Measures) -> list[str]:
    """Make the caveats of all rows those of the table, and others remarks. Return the rows that may be bold."""
    caveats = {row: measures.caveats_of(row, table.columns) for row in table.rows}
    shared = set.intersection(*caveats.values())
    table.caveats = sorted(shared)
    own = {row: sorted(words - shared) for row, words in caveats.items()}
    table.remarks.update({row: words for row, words in own.items() if words})
    return [row for row, words in own.items() if not words]
