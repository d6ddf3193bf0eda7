"""A section of a report: the runs of one task in one setting, and their tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pandas as pd

from . import pivots
from .frame import Frame
from .labels import not_comparable, show
from .names import is_zero_shot, simplify, sort_methods
from .published import DIFFERING, Matches, add_published, match
from .tables import Column, Measures, Table, differences, fill, over

# Facts on which the runs in one table of sessions must agree, because their accuracies are compared.
_SESSION_FACTS = (
    *("backbone", "weights_sha256", "splits.test", "evaluated_on"),
    *("fscil.base", "fscil.way", "fscil.shots", "fscil.split"),
)


@dataclass(frozen=True)
class Options:
    """The options of a report."""

    baseline: str = ""
    paper: bool = False
    common: bool = False  # average over the datasets that all methods have
    names: tuple[tuple[str, str], ...] = ()
    confidence: bool = False  # tables of confidence for each dataset, not only their average


class Section:
    """The tables of the runs of one task in one setting, with notes on them.

    Args:
        key: Its name for programs.
        title: Its title.
        part: Its runs.
        datasets: The datasets to average over.
        options: The options of the report.
        wide: Pivots of its values, beside the metrics of whole runs.
    """

    def __init__(
        self, key: str, title: str, part: Frame, datasets: Sequence[str], options: Options, *wide: pd.DataFrame
    ) -> None:
        self.key, self.title, self.part, self.datasets = key, title, part, list(datasets)
        known = part.only(part.runs.index[part.runs["dataset"].isin(datasets)])
        self.published = match(known) if options.paper else Matches()
        self.tables: list[Table] = []
        self.notes = list(self.published.notes)
        trainers = dict(zip(part.runs["method"], part.runs["trainer"], strict=True))
        caveats = part.runs.groupby(["method", "dataset"])["caveats"].agg(lambda texts: set().union(*texts)).to_dict()
        for (method, _), texts in caveats.items():
            texts.update([DIFFERING] if method in self.published.differing else [])
        joined = pd.concat([pivots.measures(part.values), *wide], axis=1)
        zero_shot = {method for method, trainer in trainers.items() if is_zero_shot(trainer)}
        self.measures = Measures(joined, sort_methods(trainers), zero_shot, caveats, cache(self._unlike))
        self.baseline, *others = find_methods(options.baseline, trainers) or [""]
        if others:
            named = f"The baseline is {self.baseline} here; it could also be {', '.join(others)}."
            self.notes.append(f"{named} Give the full name.")
        for (row, name), why in self.measures.differing(self.baseline).items():
            self.notes.append(f"{row} and {self.baseline} are not compared on {name}: {why}.")

    def _unlike(self, method: str) -> dict[tuple[str, str], str]:
        """Return why other methods cannot be compared with one, by method and dataset."""
        first = self.part.runs.drop_duplicates(["method", "dataset", "subset"])
        known = {(run.dataset, run.subset): run for run in first.itertuples() if run.method == method}
        reasons: dict[tuple[str, str], str] = {}
        for run in first.itertuples():
            other = known.get((run.dataset, run.subset))
            for key, value, theirs in not_comparable(run, other) if other is not None else ():
                reasons.setdefault((str(run.method), str(run.dataset)), f"{key} is {show(value)} and {show(theirs)}")
        return reasons

    def add(
        self, key: str, title: str, columns: Sequence[Column], caption: str = "", compared: Sequence[Column] = ()
    ) -> bool:
        """Add the table of some columns and the differences of others, if they have values; return whether they do."""
        table = fill(self.measures, columns, f"{self.key}-{key}", title, caption)
        if table is None:
            return False
        add_published(table, self.published.rows)
        self.tables.append(table)
        if compared and self.baseline and len(self.measures.rows) > 1:
            title = f"{title}: difference from {self.baseline}"
            self.tables.append(differences(self.measures, self.baseline, compared, f"{table.key}-difference", title))
        return True

    def add_means(
        self, columns: Sequence[Column], caption: str = "", every: Sequence[str] = (), compared: Sequence[Column] = ()
    ) -> None:
        """Add the table of the average over datasets, and those of datasets.

        Args:
            columns: The columns, without datasets.
            caption: The caption of each table.
            every: The datasets that have tables of their own; those that are averaged, if empty.
            compared: The columns of the differences, without datasets; all, if empty.
        """
        places = {name: [name] for name in every or self.datasets}
        if len(self.datasets) > 1:
            places = {"average": self.datasets, **places}
        due = over(compared or columns, self.datasets) if self.datasets else []
        for key, names in places.items():
            if self.add(simplify(key), average_title(names), over(columns, names), caption, due):
                due = []  # the first table that has values is that of the differences


def find_methods(name: str, trainers: dict[str, str]) -> list[str]:
    """Return the method with that name, or else those whose name or trainer is spelled like it."""
    if not name or name in trainers:
        return [name] if name else []
    spelled = simplify(name)
    return [label for label, trainer in trainers.items() if spelled in (simplify(label), simplify(trainer))]


def by_shots(part: Frame) -> Iterator[tuple[Frame, str, str]]:
    """Yield the runs of each number of shots, with the ends of a key and a title. Zero-shot runs are in all of them."""
    zero_shot = part.runs["trainer"].map(is_zero_shot).astype(bool)
    trained = part.runs["shots"][~zero_shot]
    counts: list[int | None] = [int(shots) for shots in sorted(trained.dropna().unique())]
    for shots in [*counts, *([None] if trained.isna().any() or not counts else [])]:
        same = part.runs["shots"].isna() if shots is None else part.runs["shots"].eq(shots).fillna(False)
        chosen = part.only(part.runs.index[same | zero_shot])
        yield (chosen, "", "") if shots is None else (chosen, f"-{shots}", f", {shots} shot{'s' * (shots != 1)}")


def average_title(datasets: Sequence[str]) -> str:
    """Return the title of an average."""
    return f"Average over {len(datasets)} datasets" if len(datasets) != 1 else datasets[0]


def kinds_of_sessions(part: Frame) -> dict[str, Frame]:
    """Group the runs of a dataset into tables. The keys are the titles, which name the facts that differ."""
    stated = [{key: show(known.get(key)) for key in _SESSION_FACTS} for known in part.runs["facts"]]
    facts = pd.DataFrame(stated, part.runs.index)
    differing, name = facts.loc[:, facts.nunique() > 1], part.runs["dataset"].iloc[0]
    if differing.empty:
        return {name: part}
    words = differing.apply(lambda row: ", ".join(f"{key} {value}" for key, value in row.items()), axis=1)
    return {f"{name} ({text})": part.only(words.index[words == text]) for text in words.unique()}
