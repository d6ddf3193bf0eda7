"""A section of a report: the runs of one task in one setting, their measures, and their confidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pandas as pd

from . import pivots
from .beside import DIFFERING
from .differences import Baseline
from .frame import Frame
from .labels import show
from .names import is_zero_shot, list_some, simplify, sort_methods
from .published import Matches, match
from .tables import LOW, Column, Measures, Table, fill

CONFIDENCE = (Column("ece", "ECE", better=LOW), Column("nll", "NLL", better=LOW, decimals=3), Column("auroc", "AUROC"))
_WORDS = {
    "ece": "ECE is the expected calibration error in percent (15 bins of equal width): lower is better.",
    "nll": "NLL is the mean negative log-likelihood in nats: lower is better.",
    "auroc": "AUROC, in percent, measures how well confidence, the highest probability, separates images of trained "
    "classes from images of other classes.",
}
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
    """The tables of one task in one setting.

    Attributes:
        key: Its name for programs.
        title: Its title.
        part: The frame of its runs.
        measures: What its tables are made of.
        datasets: The datasets that it averages over.
        published: Published numbers beside its own.
        tables: Its tables.
        notes: Sentences on them.
        main: How many of the tables stand before the figures.
    """

    key: str
    title: str
    part: Frame
    measures: Measures
    datasets: list[str]
    published: Matches = field(default_factory=Matches)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    main: int = 1

    def add(self, *tables: Table | None) -> None:
        """Append the tables that there are."""
        self.tables += [table for table in tables if table]

    def compare(self, baseline: Baseline, columns: Sequence[Column], key: str = "", what: str = "") -> Table | None:
        """Return the table of differences from the baseline."""
        key = f"{key or self.key}-difference"
        return baseline.compare(self.measures, self.part, columns, key, self.notes, what)


# ---------------------------------------------------------------------------------------- measures


def open_section(
    key: str, title: str, part: Frame, datasets: Sequence[str], options: Options, *wide: pd.DataFrame
) -> Section:
    """Return a section without tables. Methods with other settings than published ones get a caveat."""
    published = match(part) if options.paper else Matches()
    measures = measures_of(part, *wide)
    for method, dataset in measures.caveats if published.differing else ():
        if method in published.differing:
            measures.caveats[method, dataset].add(DIFFERING)
    return Section(key, title, part, measures, list(datasets), published, notes=list(published.notes))


def measures_of(part: Frame, *wide: pd.DataFrame) -> Measures:
    """Return the measures of some runs: all metrics of whole runs, such as `base_ece`, and pivots of their values."""
    trainers = dict(zip(part.runs["method"], part.runs["trainer"], strict=True))
    caveats: dict[tuple[str, str], set[str]] = {}
    for method, dataset, texts in zip(*(part.runs[name] for name in ("method", "dataset", "caveats")), strict=True):
        caveats.setdefault((method, dataset), set()).update(texts)
    zero_shot = {method for method, trainer in trainers.items() if is_zero_shot(trainer)}
    return Measures(pd.concat([_metrics(part.values), *wide], axis=1), sort_methods(trainers), zero_shot, caveats)


def _metrics(values: pd.DataFrame) -> pd.DataFrame:
    chosen = values[values["session"].isna()]
    chosen = chosen.assign(seed=chosen["seed"].fillna(-1), name=chosen["subset"] + "_" + chosen["metric"])
    return chosen.pivot_table(index=pivots.INDEX, columns="name", values="value", sort=False).rename_axis(columns=None)


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


# ---------------------------------------------------------------------------------------- confidence


class Place(NamedTuple):
    """Where confidence is measured: key and title, the datasets that are averaged, and the subset, if not the key."""

    key: str
    title: str
    datasets: Sequence[str]
    subset: str = ""
    columns: Sequence[Column] = CONFIDENCE[:2]


def add_confidences(section: Section, places: Sequence[Place], datasets: Sequence[str], each: bool) -> None:
    """Add the average over datasets, and tables by dataset if `each` is true or if no method has an average."""
    title = "Confidence" + (f", average over {len(datasets)} datasets" if len(datasets) > 1 else "")
    averaged = add_confidence(section, places, f"{section.key}-confidence", title)
    for name in datasets if len(datasets) > 1 and (each or not averaged) else ():
        here = [place._replace(datasets=[name]) for place in places if name in place.datasets]
        add_confidence(section, here, f"{section.key}-confidence-{simplify(name)}", f"Confidence on {name}")


def add_confidence(section: Section, places: Sequence[Place], key: str, title: str) -> bool:
    """Add the calibration of probabilities in some places, if runs state it; return whether they do."""
    columns = [
        replace(
            column,
            key=f"{place.key}_{column.key}",
            title=f"{place.title} {column.title}".strip(),
            datasets=tuple(place.datasets),
            measure=f"{place.subset or place.key}_{column.key}",
        )
        for place in places
        for column in place.columns
    ]
    columns = [column for column in columns if section.measures.has_mean(column)]
    table = fill(section.measures, columns, key, title) if columns else None
    if table is None:
        return False
    shown = {column.key.rpartition("_")[2] for column in columns}
    words = [text for name, text in _WORDS.items() if name in shown]
    without = [row for row in table.rows if table.mean.loc[row].isna().all()]
    if without and any(len(place.datasets) > 1 for place in places):
        verbs = ("has", "it lacks") if len(without) == 1 else ("have", "they lack")
        reason = f"{verbs[0]} no average, because {verbs[1]} the confidence on some of the datasets."
        words.append(f"{list_some(without)} {reason}")
    table.caption = " ".join(filter(None, [*words, table.caption]))
    section.add(table)
    return True
