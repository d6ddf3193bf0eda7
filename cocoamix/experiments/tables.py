"""Tables of means over seeds and datasets: their columns, their cells, what is bold, and which remarks they need.

A table is made by `fill` from measures by method, dataset and seed, and from a list of columns. A new column is one
more `Column`; the measures of its task have all metrics of the runs already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .stats import t_interval

Numbers = NDArray[np.float64]

HIGH, LOW, NEITHER = 1, -1, 0
UNTESTED = "Nothing is bold: with one value for each method, no difference can be told from noise."


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
    """

    wide: pd.DataFrame
    rows: list[str]
    zero_shot: set[str]
    caveats: Mapping[tuple[str, str], set[str]]

    def __post_init__(self) -> None:
        self._cells = self.wide.groupby(level=["method", "dataset"]).indices
        self._seeds, seeds = pd.factorize(self.wide.index.get_level_values("seed"), use_na_sentinel=False)
        self._count = max(1, len(seeds))

    def cube(self, column: Column) -> Numbers:
        """Return the values of a column by row, dataset and seed; nan where there is none."""
        cube = np.full((len(self.rows), len(column.datasets), self._count), np.nan)
        measure = column.measure or column.key
        if measure not in self.wide:
            return cube
        values = self.wide[measure].to_numpy(dtype=float, na_value=np.nan)
        values = np.where(np.isfinite(values), values, np.nan)
        for place, row in enumerate(self.rows):
            for number, dataset in enumerate(column.datasets):
                cell = self._cells.get((row, dataset), [])
                cube[place, number, self._seeds[cell]] = values[cell]
        return cube

    def caveats_of(self, row: str, columns: Iterable[Column]) -> set[str]:
        """Return the caveats of the runs of a row in some columns."""
        datasets = {dataset for column in columns for dataset in column.datasets}
        return {words for dataset in datasets for words in self.caveats.get((row, dataset), ())}

    def has_mean(self, column: Column) -> bool:
        """Return whether a row has values on all datasets of a column."""
        return bool(column.datasets) and bool(np.isfinite(_mean(self.cube(column), 2).mean(axis=1)).any())

    def pairs(self, cube: Numbers, row: int, other: int) -> tuple[list[float], str]:
        """Return paired differences of two rows, and whether they are by dataset or by seed.

        Several datasets are paired by dataset (means over shared seeds), because seeds of one dataset are not
        independent; a single dataset is paired by seed.
        """
        gaps = self._every_seed(cube, row) - self._every_seed(cube, other)
        shared = [gap[np.isfinite(gap)] for gap in gaps]
        if {self.rows[row], self.rows[other]} <= self.zero_shot:
            shared = [gap[:1] for gap in shared]  # both have one value, repeated for every seed
        shared = [gap for gap in shared if len(gap)]
        if len(shared) == 1:
            return shared[0].tolist(), "seed"
        return [float(gap.mean()) for gap in shared], "dataset"

    def _every_seed(self, cube: Numbers, row: int) -> Numbers:
        """Return the values of a row, with the one value of a zero-shot method for every seed."""
        values = cube[row]
        if self.rows[row] not in self.zero_shot:
            return values
        return np.where((np.isfinite(values).sum(axis=1) == 1)[:, None], _mean(values, 1)[:, None], values)


def _mean(values: Numbers, axis: int) -> Numbers:
    """Return the mean of what is not missing; nan where everything is."""
    present = np.isfinite(values)
    count = present.sum(axis=axis)
    total = np.where(present, values, 0.0).sum(axis=axis)
    mean: Numbers = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return mean


# ---------------------------------------------------------------------------------------- tables of means


def fill(measures: Measures, columns: Sequence[Column], key: str, title: str, caption: str = "") -> Table | None:
    """Return the table of some columns; None if there is no value at all.

    A cell is the mean over datasets of the means over seeds. Its deviation is that of the seeds' averages, and missing
    where datasets have different seeds.
    """
    columns = [column for column in columns if column.datasets]
    cubes = [measures.cube(column) for column in columns]
    present = np.array([np.isfinite(cube).any(axis=(1, 2)) for cube in cubes]).reshape(len(cubes), -1).any(axis=0)
    kept = [int(place) for place in np.flatnonzero(present)]
    rows = [measures.rows[place] for place in kept]
    if not rows:
        return None
    table = Table.empty(key, title, columns, rows, caption=caption)
    tested = False
    eligible = remark_caveats(table, measures)
    for column, cube in zip(columns, cubes, strict=True):
        _fill_column(table, column, cube[kept])
        bold, told = _bold(measures, column, cube, [place for place in kept if measures.rows[place] in eligible])
        table.bold[column.key] = [place in bold for place in kept]
        tested |= told
    if len(eligible) > 1 and not tested:
        table.caption = f"{table.caption} {UNTESTED}".strip()
    _count_seeds(table, measures, np.concatenate([np.isfinite(cube[kept]).sum(axis=2) for cube in cubes], axis=1))
    return table


def _fill_column(table: Table, column: Column, cube: Numbers) -> None:
    averages = cube.mean(axis=1)  # by row and seed; nan where a dataset is missing
    counts, shared = np.isfinite(cube).sum(axis=2), np.isfinite(averages).sum(axis=1)
    whole = (counts == shared[:, None]).all(axis=1)  # otherwise the mean of the shared seeds would differ
    table.mean[column.key] = _mean(cube, 2).mean(axis=1)
    table.n[column.key] = np.where(whole, shared, 0)
    for place, row in enumerate(table.rows):
        values = averages[place][np.isfinite(averages[place])]
        if whole[place] and len(values):
            table.seeds[row, column.key] = [float(value) for value in values]
        if whole[place] and len(values) > 1:
            table.std.loc[row, column.key] = values.std()


def _bold(measures: Measures, column: Column, cube: Numbers, eligible: Sequence[int]) -> tuple[set[int], bool]:
    """Return the rows that cannot be told from the best, and whether any could be compared with it."""
    means = {place: float(_mean(cube[place], 1).mean()) for place in eligible} if column.better else {}
    means = {place: mean for place, mean in means.items() if np.isfinite(mean)}
    if len(means) < 2:
        return set(), not column.better
    best = max(means, key=lambda place: column.better * means[place])
    intervals = {place: t_interval(measures.pairs(cube, best, place)[0]) for place in means if place != best}
    known = {place: ends for place, ends in intervals.items() if np.isfinite(ends).all()}
    if not known:
        return set(), False
    level = 1e-9  # rounding errors of equal values are no difference
    alike = {place for place, (low, high) in known.items() if low <= level and high >= -level}
    return {best, *alike, *(place for place in means if means[place] == means[best])}, True


def _count_seeds(table: Table, measures: Measures, counts: NDArray[np.int_]) -> None:
    """Append the number of seeds, and mark trained methods that have fewer than others.

    Args:
        table: The table.
        measures: Its measures.
        counts: The number of seeds by row, of each measure on each dataset.
    """
    present = [sorted({int(count) for count in row if count}) for row in counts]
    texts = [str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}" for found in present]
    table.add(SEEDS, words=texts)
    fewest = {row: found[0] for row, found in zip(table.rows, present, strict=True) if row not in measures.zero_shot}
    for row, count in fewest.items():
        if count < max(fewest.values()):
            table.remarks.setdefault(row, []).append("fewer seeds than other rows")


def remark_caveats(table: Table, measures: Measures) -> set[str]:
    """Make the caveats of all rows those of the table, and others remarks. Return the rows that may be bold."""
    caveats = {row: measures.caveats_of(row, table.columns) for row in table.rows}
    shared = set.intersection(*caveats.values())
    table.caveats = sorted(shared)
    own = {row: sorted(words - shared) for row, words in caveats.items()}
    table.remarks.update({row: words for row, words in own.items() if words})
    return {row for row, words in own.items() if not words}


def stack(tables: Mapping[str, Table], title: str, named: bool) -> Table | None:
    """Return one table of several with equal columns; None for no table.

    Args:
        tables: The tables by name.
        title: The title of the whole.
        named: Whether its rows are named after their tables.
    """
    if not tables:
        return None
    joined = replace(next(iter(tables.values())), title=title, seeds={}, remarks={})
    labels = {name: {row: f"{name}: {row}" if named else row for row in table.rows} for name, table in tables.items()}
    for part in ("mean", "std", "n", "words", "bold"):
        parts = [getattr(table, part).rename(index=labels[name]) for name, table in tables.items()]
        setattr(joined, part, pd.concat(parts))
    for name, table in tables.items():
        joined.seeds |= {(labels[name][row], key): values for (row, key), values in table.seeds.items()}
        joined.remarks |= {labels[name][row]: texts for row, texts in table.remarks.items()}
    joined.caption = " ".join(dict.fromkeys(table.caption for table in tables.values() if table.caption))
    return joined
