"""Our runs next to the tables of the paper that have only averages: ensembles, weights, stages, kinds of out-classes.

A run is matched to a row only if it states everything that the row requires: trainer, backbone and settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .model.rows import Row, show
from .model.tables import METRICS, PLAIN, SEEDS, Column, Line, Table, Value, average, count_text, measure
from .names import simplify
from .paper import figures, paper_method
from .readers.logs import canonical

Entry = Mapping[str, Any]  # a row of a table of the paper
Place = tuple[str, str]  # the key of a table, and the name of its row


@dataclass
class PaperComparison:
    """Our results next to the paper's averages."""

    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    matched: set[str] = field(default_factory=set)  # labels of our rows in the tables


def compare_with_averages(rows: Sequence[Row], datasets: Sequence[str], shots: int | None, key: str) -> PaperComparison:
    """Return each table of the paper that has a row for ours, with ours next to it.

    Rows that the paper repeats from its base-to-new table do not count, because they are shown there.

    Args:
        rows: Our rows.
        datasets: The datasets of our averages.
        shots: The shots of our rows.
        key: The start of the keys of the tables.
    """
    compared = PaperComparison()
    if shots != figures()["ablations"]["shots"]:  # a note on the base-to-new table states it
        return compared
    entries = _entries()
    matched = {place: [row for row in rows if differing(row, entry, rows) == []] for place, entry in entries.items()}
    new = {place for place, found in matched.items() if found and "repeats" not in entries[place]}
    fitting = [place for place, entry in entries.items() if _fits(entry, datasets)]
    compared.notes += _other_averages([place for place in entries if place in new.difference(fitting)], datasets)
    shown = {table for table, _ in new.intersection(fitting)}
    shown_at = {place: matched[place] if place in fitting else [] for place in entries if place[0] in shown}
    for table in figures()["ablations"]["tables"]:
        if table in shown:
            compared.tables.append(_table(table, shown_at, datasets, key))
            content = figures()["ablations"]["tables"][table]
            compared.notes.append(f"The paper's table of {content['table']}: {content['note']}")
    compared.matched = {row.label for found in shown_at.values() for row in found}
    compared.notes += _contradictions(rows, shown_at)
    compared.notes += _near_misses(rows, {place: entries[place] for place in fitting}, compared.matched)
    return compared


def _entries() -> dict[Place, Entry]:
    tables = figures()["ablations"]["tables"]
    return {(key, name): entry for key, table in tables.items() for name, entry in table["rows"].items()}


def _title(place: Place) -> str:
    return str(figures()["ablations"]["tables"][place[0]]["table"])


def _decimals(place: Place) -> int:
    return int(figures()["ablations"]["tables"][place[0]]["decimals"])


def _fits(entry: Entry, datasets: Sequence[str]) -> bool:
    """Return whether an average over our datasets can be shown next to a row of the paper.

    The paper does not name the ten datasets of some averages, so at least as many of ours are enough.
    """
    known = set(figures()["base_to_new"]["datasets"]) - {"Average"}
    return set(datasets) <= known and entry["datasets"] <= len(datasets)


# ---------------------------------------------------------------------------------------- matching rows


def differing(row: Row, entry: Entry, rows: Sequence[Row]) -> list[str] | None:
    """Describe how our row differs from a row of the paper; None for another trainer.

    What a run does not state counts as different.

    Args:
        row: Our row.
        entry: The paper's row.
        rows: All our rows, including those of the prompts that the row builds on.
    """
    if any(simplify(run.trainer) != simplify(entry["trainer"]) for run in row.runs):
        return None
    words: dict[str, None] = {}
    for run in row.runs:
        found = run.protocol.get("backbone")
        if "backbone" in entry and _members(found) != _members(entry["backbone"]):
            words[f"backbone is {show(found)} here, {entry['backbone']} in the paper"] = None
        for key, value in required(entry).items():
            if run.settings.get(key) != value:
                words[f"{key} is {show(run.settings.get(key))} here, {show(value)} in the paper"] = None
    return [*words, *(_differing_prompts(row, entry["prompts"], rows) if "prompts" in entry else [])]


def required(entry: Entry) -> dict[str, Any]:
    """Return the settings of a row of the paper: those of a base-to-new method, with the row's own changes."""
    own = figures()["base_to_new"]["settings"].get(entry.get("like"), {}) | entry.get("settings", {})
    return {key: canonical(value) for key, value in own.items() if value is not None}


def _members(backbone: object) -> list[str]:
    """Return the sorted names of the models in an ensemble."""
    return sorted(simplify(name) for name in str(backbone).split("+"))


def _differing_prompts(row: Row, entry: Entry, rows: Sequence[Row]) -> list[str]:
    """Describe how the training of the prompts that a row builds on differs from the paper's."""
    words: dict[str, None] = {}
    for run in row.runs:
        if not run.prompts:
            words["the runs of its prompts are not stated"] = None
        for trainer, config in run.prompts:
            name = f"{trainer}/{config}"
            owners = [one for one in rows if any((of.trainer, of.config) == (trainer, config) for of in one.runs)]
            if simplify(trainer) != simplify(entry["trainer"]):
                words[f"its prompts are of {name} here, of {entry['trainer']} in the paper"] = None
            elif not owners:
                words[f"the runs of its prompts, {name}, are not in this report"] = None
            for owner in owners:
                words |= dict.fromkeys(f"in its prompts, {text}" for text in differing(owner, entry, rows) or [])
    return list(words)


# ---------------------------------------------------------------------------------------- tables


def _table(key: str, shown: Mapping[Place, Sequence[Row]], datasets: Sequence[str], prefix: str) -> Table:
    """Return a table with all rows of a table of the paper and ours next to them."""
    content = figures()["ablations"]
    printed = content["tables"][key]
    metrics = [column for column in METRICS if any(column.key in entry for entry in printed["rows"].values())]
    columns = [Column("row", "our row", PLAIN)]
    for column in metrics:
        columns += [Column(column.key, f"{column.title} ours", PLAIN)]
        columns += [Column(f"{column.key}_paper", f"{column.title} paper", PLAIN)]
        columns += [Column(f"{column.key}_gap", f"Δ {column.title}", PLAIN, signed=True)]
    columns += [Column("datasets", "datasets", PLAIN), SEEDS]
    lines = []
    for name, entry in printed["rows"].items():
        found: Sequence[Row | None] = shown[key, name] or [None]
        for row in found:
            lines.append(Line(name, _values(row, entry, [one.key for one in metrics], datasets, printed["decimals"])))
    source = f"{figures()['source']}: {content['setting']}"
    caption = f"The paper's numbers are those printed in {source}. Δ is ours minus the paper's."
    title = f"Ours next to the paper's table of {printed['table']}"
    return Table(f"{prefix}-{key}", title, columns, lines, first="row of the paper", caption=caption)


def _values(
    row: Row | None, entry: Entry, metrics: Sequence[str], datasets: Sequence[str], decimals: int
) -> list[Value]:
    """Return the cells of one line, with a difference only if the datasets are known to be the same."""
    same = entry["datasets"] == len(datasets) == len(figures()["base_to_new"]["datasets"]) - 1
    measures = [measure(row, dataset) for dataset in datasets] if row else []
    values = [Value(text=row.label if row else "")]
    for metric in metrics:
        own, theirs = average([one[metric] for one in measures]), entry[metric]
        gap = Value(own.mean - theirs, decimals=decimals) if same and own.mean is not None else Value()
        values += [own, Value(theirs, decimals=decimals), gap]
    count = str(len(datasets)) if same else f"{len(datasets)} here, {entry['datasets']} in the paper"
    seeds = count_text(len(found) for one in measures for found in one.values())
    return [*values, Value(text=count if row else ""), seeds]


# ---------------------------------------------------------------------------------------- notes


def _other_averages(places: Sequence[Place], datasets: Sequence[str]) -> list[str]:
    """Explain why some rows are not compared: the paper prints only averages over other datasets."""
    if not places:
        return []
    titles = dict.fromkeys(_title(place) for place in places)
    counts = dict.fromkeys(str(_entries()[place]["datasets"]) for place in places)
    return [
        f"The paper prints only averages over {' or '.join(counts)} datasets in its tables of {', '.join(titles)}; "
        f"yours are over {len(datasets)}, so they are not compared."
    ]


def _contradictions(rows: Sequence[Row], shown: Mapping[Place, Sequence[Row]]) -> list[str]:
    """Note where the paper prints different numbers for one configuration of ours."""
    entries, notes = _entries(), []
    for row in rows:
        places = [place for place, found in shown.items() if row in found]
        for column in METRICS:
            printed = [(place, entries[place][column.key]) for place in places if column.key in entries[place]]
            rounding = max([0.5 * 10 ** -_decimals(place) for place, _ in printed], default=0.0)
            values = [value for _, value in printed]
            if values and max(values) - min(values) > 2 * rounding + 1e-9:
                texts = [f"{value:.{_decimals(p)}f} (table of {_title(p)}, {p[1]})" for p, value in printed]
                notes.append(
                    f"{row.label} matches several rows of the paper, which print different values of "
                    f"{column.title}: {' and '.join(texts)}."
                )
    return notes


def _near_misses(rows: Sequence[Row], entries: Mapping[Place, Entry], shown: set[str]) -> list[str]:
    """Explain, for rows whose trainer is in these tables, why they match no row of the paper."""
    notes, methods = [], list(figures()["base_to_new"]["datasets"]["Average"])
    for row in rows:
        if row.label in shown or paper_method(row, methods):
            continue
        found = {place: differing(row, entry, rows) for place, entry in entries.items()}
        missed = [(_foreign_prompts(row, entries[place]), len(words), place) for place, words in found.items() if words]
        if missed:
            place = min(missed, key=lambda one: one[:2])[2]
            words = found[place] or []
            notes.append(
                f"{row.label} is not compared with {place[1]} in the paper's table of {_title(place)}; "
                f"settings differ: {words[0]}."
            )
    return notes


def _foreign_prompts(row: Row, entry: Entry) -> bool:
    """Return whether a row builds on prompts of another trainer than the paper's row, which no setting can change."""
    wanted = entry.get("prompts", {}).get("trainer", "")
    return any(simplify(trainer) != simplify(wanted) for run in row.runs for trainer, _ in run.prompts)
