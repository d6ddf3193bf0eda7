"""Tables of confidence: how well the probabilities of each method are calibrated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cocoamix.report.names import list_some, simplify

from .rows import Cell, Row
from .tables import LOW, SEEDS, Column, Line, Seeds, Table, average, count_sessions, count_text

ECE = Column("ece", "ECE", LOW)
NLL = Column("nll", "NLL", LOW, decimals=3)
AUROC = Column("auroc", "AUROC")
WORDS = {
    "ece": "ECE is the expected calibration error in percent (15 bins of equal width): lower is better.",
    "nll": "NLL is the mean negative log-likelihood in nats: lower is better.",
    "auroc": "AUROC, in percent, measures how well confidence, the highest probability, separates images of trained "
    "classes from images of other classes.",
}


@dataclass(frozen=True)
class Place:
    """Where confidence is measured: one dataset and subset, or several that are averaged."""

    key: str
    title: str
    cells: Sequence[Cell]
    measures: tuple[Column, ...] = (ECE, NLL)


Places = Callable[[Sequence[str]], list[Place]]  # the places of some datasets


def halves(rows: Sequence[Row]) -> Places:
    """Return the places of base-to-new: base, new, and all classes together if they were evaluated."""

    def places(datasets: Sequence[str]) -> list[Place]:
        whole = [dataset for dataset in datasets if any(row.by_seed(dataset, "all") for row in rows)]
        return [*subsets("base", "new")(datasets), Place("all", "all", _cells(whole, "all"), (ECE, NLL, AUROC))]

    return places


def subsets(*names: str) -> Places:
    """Return the place of each subset. A single one needs no name."""

    def places(datasets: Sequence[str]) -> list[Place]:
        return [Place(name, name if len(names) > 1 else "", _cells(datasets, name)) for name in names]

    return places


def _cells(datasets: Sequence[str], subset: str) -> list[Cell]:
    return [(dataset, subset) for dataset in datasets]


def dataset_tables(rows: Sequence[Row], datasets: Sequence[str], places: Places, key: str, each: bool) -> list[Table]:
    """Return the average over datasets, and tables by dataset if `each` is true or if no method has an average."""
    if len(datasets) == 1:
        return _as_list(confidence_table(rows, places(datasets), f"{key}-confidence", "Confidence"))
    title = f"Confidence, average over {len(datasets)} datasets"
    tables = _as_list(confidence_table(rows, places(datasets), f"{key}-confidence", title))
    if each or not tables:
        for one in datasets:
            name = f"{key}-confidence-{simplify(one)}"
            tables += _as_list(confidence_table(rows, places([one]), name, f"Confidence on {one}"))
    return tables


def transfer_tables(
    rows: Sequence[Row], source: str, others: Sequence[str], domains: Sequence[str], key: str, each: bool
) -> list[Table]:
    """Return source and averages over targets, and each target if `each` is true or if there is no average."""
    first = Place("source", f"{source} (source)" if source else "source", _cells([source], "all"))
    averages = [
        Place("target", "target average", _cells(others, "all")),
        Place("domain", "domain average", _cells(domains, "all")),
    ]
    tables = _as_list(confidence_table(rows, [first, *averages], f"{key}-confidence", "Confidence"))
    if each or not tables:
        targets = [Place(one, one, _cells([one], "all")) for one in (*others, *domains)]
        title = "Confidence on each target"
        tables += _as_list(confidence_table(rows, [first, *targets], f"{key}-confidence-each", title))
    return tables


def session_tables(rows: Sequence[Row], datasets: Sequence[str], key: str, where: str) -> list[Table]:
    """Return the confidence after the last session of class-incremental learning, averaged over datasets."""
    whole = [_after_last_session(row, {one: count_sessions(rows, one) for one in datasets}) for row in rows]
    title = f"Confidence after the last session: {where}"
    return _as_list(confidence_table(whole, subsets("all")(datasets), f"{key}-confidence", title))


def _after_last_session(row: Row, counts: Mapping[str, int]) -> Row:
    """Return a row without runs that lack a session: their confidence is over fewer classes."""
    cells = {
        (dataset, "all"): {seed: run for seed, run in row.by_seed(dataset, "all").items() if len(run.sessions) == count}
        for dataset, count in counts.items()
    }
    return replace(row, cells=cells)


def confidence_table(rows: Sequence[Row], places: Sequence[Place], key: str, title: str) -> Table | None:
    """Return the confidence of runs in some places; None if there is nothing to show."""
    wanted = [(place, measure) for place in places for measure in place.measures]
    values = {
        (place.key, measure.key): [average(_measures(row, place, measure)) for row in rows] for place, measure in wanted
    }
    shown = [one for one in wanted if any(not value.missing for value in values[one[0].key, one[1].key])]
    if not shown:
        return None
    lines = []
    for number, row in enumerate(rows):
        cells = [values[place.key, measure.key][number] for place, measure in shown]
        if any(any(_measures(row, place, measure)) for place, measure in shown):
            lines.append(Line(row.label, [*cells, count_text(value.n for value in cells)]))
    measured = {measure.key for _, measure in shown}
    caption = " ".join(words for name, words in WORDS.items() if name in measured)
    without = [line.label for line in lines if all(value.mean is None for value in line.values)]
    if without and any(len(place.cells) > 1 for place in places):
        single = len(without) == 1
        caption += (
            f" {list_some(without)} {'has' if single else 'have'} no average, because "
            f"{'it lacks' if single else 'they lack'} the confidence on some of the datasets."
        )
    return Table(key, title, [*(_column(*one) for one in shown), SEEDS], lines, caption=caption).mark_best()


def _measures(row: Row, place: Place, measure: Column) -> list[Seeds]:
    """Return a measure by seed in each cell of a place. Some runs did not record it."""
    return [
        {
            seed: run.metrics[measure.key]
            for seed, run in row.by_seed(*cell).items()
            if math.isfinite(run.metrics.get(measure.key, math.nan))
        }
        for cell in place.cells
    ]


def _column(place: Place, measure: Column) -> Column:
    title = f"{place.title} {measure.title}".strip()
    return Column(f"{place.key}_{measure.key}", title, measure.better, measure.decimals)


def _as_list(table: Table | None) -> list[Table]:
    return [] if table is None else [table]
