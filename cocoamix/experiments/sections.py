"""A section of a report: the runs of one task in one setting, their tables, differences, and confidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import pandas as pd

from . import pivots
from .beside import DIFFERING, add_published, comparison_tables
from .differences import differences, differing_runs, find_baselines
from .frame import Frame
from .labels import show
from .names import is_zero_shot, simplify, sort_datasets, sort_methods
from .published import Matches, match
from .tables import LOW, Column, Measures, Table, fill

CONFIDENCE = (Column("ece", "ECE", better=LOW), Column("nll", "NLL", better=LOW, decimals=3), Column("auroc", "AUROC"))
_CAPTION = (
    "ECE is the expected calibration error in percent (15 bins of equal width), and NLL the mean negative "
    "log-likelihood in nats: lower is better. AUROC, in percent, measures how well confidence, the highest "
    "probability, separates images of trained classes from images of other classes."
)
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


class Place(NamedTuple):
    """Where confidence is measured: the key and title of its columns, the subset, and the datasets to average over."""

    key: str
    title: str
    subset: str
    datasets: Sequence[str]


@dataclass
class Section:
    """The tables of one task in one setting.

    Attributes:
        key: Its name for programs.
        title: Its title.
        part: The frame of its runs.
        measures: What its tables are made of.
        datasets: The datasets that it averages over.
        options: The options of the report.
        published: Published numbers beside its own.
        tables: Its tables.
        notes: Sentences on them.
    """

    key: str
    title: str
    part: Frame
    measures: Measures
    datasets: list[str]
    options: Options
    published: Matches = field(default_factory=Matches)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, key: str, title: str, columns: Sequence[Column], caption: str = "") -> bool:
        """Add the table of some columns with its published rows; return whether there is one."""
        table = fill(self.measures, columns, f"{self.key}-{key}", title, caption)
        self.tables += [add_published(table, self.published)] if table else []
        return table is not None

    def add_means(
        self, columns: Sequence[Column], caption: str = "", compared: Sequence[Column] = (), every: Sequence[str] = ()
    ) -> None:
        """Add the average over datasets, differences from the baseline, and a table of each dataset.

        Args:
            columns: The columns, without datasets.
            caption: The caption of each table.
            compared: The columns of the differences; all, if empty.
            every: The datasets that have tables of their own; those that are averaged, if empty.
        """
        if len(self.datasets) > 1:
            self.add("average", average_title(self.datasets), over(columns, self.datasets), caption)
        for name in every or self.datasets:
            self.add(simplify(name), name, over(columns, [name]), caption)
        self.add_differences(over(compared or columns, self.datasets), place=1)
        self.tables += comparison_tables(self.published, f"{self.key}-published")

    def add_differences(
        self, columns: Sequence[Column], key: str = "difference", what: str = "", place: int = -1
    ) -> None:
        """Add the differences from the baseline, if it is here, and note why rows are not compared.

        Args:
            columns: The columns to compare.
            key: The end of the table's key.
            what: Which results are compared, for the title.
            place: Its place among the tables; -1 for the last.
        """
        measures = self.measures
        named = [row for row in find_baselines(self.options.baseline, self.part.runs) if row in measures.rows]
        if not named or not any(column.datasets for column in columns):
            return
        first = named[0]
        if len(named) > 1:
            listed = ", ".join(named[1:])
            self.notes.append(f"The baseline is {first} here; it could also be {listed}. Give the full name.")
        if len(measures.rows) == 1:
            self.notes.append(f"There is no other method here to compare with {first}.")
            return
        unlike = differing_runs(self.part, first)
        self.notes += [f"{row} and {first} are not compared on {name}: {why}." for (row, name), why in unlike.items()]
        alike = measures.wide[~measures.wide.index.droplevel("seed").isin(list(unlike))]
        title = f"Difference from {first}" + (f", {what}" if what else "")
        table = differences(replace(measures, wide=alike), first, columns, f"{self.key}-{key}", title)
        self.tables.insert(place if place >= 0 else len(self.tables), table)

    def add_confidence(self, places: Sequence[Place], title: str = "Confidence") -> None:
        """Add the calibration of probabilities: averages, and each dataset by option or if there are no averages."""
        names = sort_datasets(name for place in places for name in place.datasets)
        average = f"{title}, average over {len(names)} datasets" if len(names) > 1 else title
        averaged = self.add("confidence", average, _confidence(places), _CAPTION)
        for name in names if len(names) > 1 and (self.options.confidence or not averaged) else ():
            here = [place._replace(datasets=[name]) for place in places if name in place.datasets]
            self.add(f"confidence-{simplify(name)}", f"{title} on {name}", _confidence(here), _CAPTION)


def _confidence(places: Sequence[Place]) -> list[Column]:
    return [
        replace(
            column,
            key=f"{place.key}_{column.key}",
            title=f"{place.title} {column.title}".strip(),
            datasets=tuple(place.datasets),
            measure=f"{place.subset}_{column.key}",
        )
        for place in places
        for column in CONFIDENCE
    ]


# ---------------------------------------------------------------------------------------- runs


def open_section(
    key: str, title: str, part: Frame, datasets: Sequence[str], options: Options, *wide: pd.DataFrame
) -> Section:
    """Return a section without tables. Methods with other settings than published ones get a caveat.

    Args:
        key: Its name for programs.
        title: Its title.
        part: Its runs.
        datasets: The datasets to average over.
        options: The options of the report.
        wide: Pivots of its values, beside the metrics of whole runs.
    """
    trainers = dict(zip(part.runs["method"], part.runs["trainer"], strict=True))
    caveats: dict[tuple[str, str], set[str]] = {}
    for run in part.runs.itertuples():
        caveats.setdefault((run.method, run.dataset), set()).update(run.caveats)
    known = part.only(part.runs.index[part.runs["dataset"].isin(datasets)])
    published = match(known) if options.paper else Matches()
    for (method, _), texts in caveats.items():
        texts |= {DIFFERING} if method in published.differing else set()
    joined = pd.concat([pivots.measures(part.values), *wide], axis=1)
    zero_shot = {method for method, trainer in trainers.items() if is_zero_shot(trainer)}
    measures = Measures(joined, sort_methods(trainers), zero_shot, caveats, partial(differing_runs, part))
    return Section(key, title, part, measures, list(datasets), options, published, notes=list(published.notes))


def over(columns: Sequence[Column], datasets: Sequence[str]) -> list[Column]:
    """Return columns that are averaged over datasets."""
    return [replace(column, datasets=tuple(datasets)) for column in columns]


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
    facts = pd.DataFrame([{key: show(known.get(key)) for key in _SESSION_FACTS} for known in part.runs["facts"]])
    facts.index = part.runs.index
    differing = [key for key in _SESSION_FACTS if facts[key].nunique() > 1]
    name = part.runs["dataset"].iloc[0]
    words = facts[differing].apply(lambda row: ", ".join(f"{key} {row[key]}" for key in differing), axis=1)
    if not differing:
        return {name: part}
    return {f"{name} ({text})": part.only(words.index[words == text]) for text in words.unique()}
