"""A section of a report: the runs of one task in one setting, and their tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import pandas as pd

from . import pivots
from .frame import Frame
from .labels import not_comparable, show
from .names import is_zero_shot, simplify, sort_datasets, sort_methods
from .published import DIFFERING, Matches, add_published, match
from .tables import LOW, Column, Measures, Table, differences, fill, over

_CONFIDENCE = (Column("ece", "ECE", better=LOW), Column("nll", "NLL", better=LOW, decimals=3), Column("auroc", "AUROC"))
_ABOUT_CONFIDENCE = (
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


@dataclass
class Section:
    """The tables of one task in one setting, with notes on them. `datasets` are those that it averages over."""

    key: str
    title: str
    part: Frame
    datasets: list[str]
    options: Options
    measures: Measures
    published: Matches
    baseline: str = ""
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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
        self, columns: Sequence[Column], caption: str, compared: Sequence[Column] = (), every: Sequence[str] = ()
    ) -> None:
        """Add a table of the average and one of each dataset.

        Args:
            columns: The columns, without datasets.
            caption: The caption of each table.
            compared: The columns of the differences, without datasets; all, if empty.
            every: The datasets that have tables of their own; those that are averaged, if empty.
        """
        due = over(compared or columns, self.datasets)
        if len(self.datasets) > 1 and self.add(
            "average", average_title(self.datasets), over(columns, self.datasets), caption, due
        ):
            due = []
        for name in every or self.datasets:
            if self.add(simplify(name), name, over(columns, [name]), caption, due):
                due = []

    def add_confidence(self, places: Sequence[Column], title: str = "Confidence") -> None:
        """Add the calibration of probabilities: averages, and each dataset by option or if there are no averages.

        Args:
            places: A column for each subset of the classes (its `measure`), with its datasets.
            title: The title of the tables.
        """
        names = sort_datasets(name for place in places for name in place.datasets)
        average = f"{title}, average over {len(names)} datasets" if len(names) > 1 else title
        averaged = self.add("confidence", average, _confidence(places), _ABOUT_CONFIDENCE)
        for name in names if len(names) > 1 and (self.options.confidence or not averaged) else ():
            here = over([place for place in places if name in place.datasets], [name])
            self.add(f"confidence-{simplify(name)}", f"{title} on {name}", _confidence(here), _ABOUT_CONFIDENCE)


def _confidence(places: Sequence[Column]) -> list[Column]:
    return [
        replace(
            column,
            key=f"{place.key}_{column.key}",
            title=f"{place.title} {column.title}".strip(),
            datasets=place.datasets,
            measure=f"{place.source}_{column.key}",
        )
        for place in places
        for column in _CONFIDENCE
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
    known = part.only(part.runs.index[part.runs["dataset"].isin(datasets)])
    published = match(known) if options.paper else Matches()
    caveats: dict[tuple[str, str], set[str]] = {}
    for run in part.runs.itertuples():
        own = {DIFFERING} if run.method in published.differing else set()
        caveats.setdefault((run.method, run.dataset), own).update(run.caveats)
    joined = pd.concat([pivots.measures(part.values), *wide], axis=1)
    zero_shot = {method for method, trainer in trainers.items() if is_zero_shot(trainer)}
    measures = Measures(joined, sort_methods(trainers), zero_shot, caveats, cache(lambda row: unlike_runs(part, row)))
    section = Section(key, title, part, list(datasets), options, measures, published, notes=list(published.notes))
    _choose_baseline(section, find_methods(options.baseline, trainers))
    return section


def find_methods(name: str, trainers: dict[str, str]) -> list[str]:
    """Return the method with that name, or else those whose name or trainer is spelled like it."""
    if not name or name in trainers:
        return [name] if name else []
    spelled = simplify(name)
    return [label for label, trainer in trainers.items() if spelled in (simplify(label), simplify(trainer))]


def _choose_baseline(section: Section, named: Sequence[str]) -> None:
    """Set the baseline, and note what else it could be and why rows are not compared with it."""
    if named:
        section.baseline = first = named[0]
        if len(named) > 1:
            section.notes.append(
                f"The baseline is {first} here; it could also be {', '.join(named[1:])}. Give the full name."
            )
        unlike = section.measures.differing(first).items()
        section.notes += [f"{row} and {first} are not compared on {name}: {why}." for (row, name), why in unlike]


def unlike_runs(part: Frame, method: str) -> dict[tuple[str, str], str]:
    """Return why other methods cannot be compared with one, by method and dataset."""
    first = part.runs.drop_duplicates(["method", "dataset", "subset"])
    known = {(run.dataset, run.subset): run for run in first.itertuples() if run.method == method}
    reasons: dict[tuple[str, str], str] = {}
    for run in first.itertuples():
        other = known.get((run.dataset, run.subset))
        for key, value, theirs in not_comparable(run, other) if other is not None else ():
            reasons.setdefault((str(run.method), str(run.dataset)), f"{key} is {show(value)} and {show(theirs)}")
    return reasons


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
    facts = pd.DataFrame(
        [{key: show(known.get(key)) for key in _SESSION_FACTS} for known in part.runs["facts"]], part.runs.index
    )
    differing = facts.loc[:, facts.nunique() > 1]
    name = part.runs["dataset"].iloc[0]
    if differing.empty:
        return {name: part}
    words = differing.apply(lambda row: ", ".join(f"{key} {value}" for key, value in row.items()), axis=1)
    return {f"{name} ({text})": part.only(words.index[words == text]) for text in words.unique()}
