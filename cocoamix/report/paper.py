"""The paper's printed numbers next to ours. They are labelled as such, and never averaged or marked as the best."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from .model.rows import Row, show
from .model.stats import harmonic, mean
from .model.tables import METRICS, PLAIN, Column, Line, Table, Value, measure, summarise
from .names import simplify
from .readers.logs import canonical


@lru_cache(maxsize=1)
def figures() -> dict[str, Any]:
    """Return the printed numbers with their source."""
    content: dict[str, Any] = json.loads((Path(__file__).parent / "paper.json").read_text(encoding="utf-8"))
    return content


def paper_method(row: Row, methods: Sequence[str]) -> str | None:
    """Return the paper's name for the method of a row."""
    names = {simplify(name): name for name in methods}
    if simplify(row.label) in names:
        return names[simplify(row.label)]
    settings = row.runs[0].settings if row.runs else {}
    if simplify(row.trainer) == "cocoamix" and settings.get("TRAINER.COCOAMIX.ENSEMBLE") == "uniform":
        return names.get("coaloss")
    return names.get(simplify(row.label.split(" (")[0].split(" [")[0]))


def other_settings(row: Row, method: str) -> list[str]:
    """Describe how the runs of a row differ from the settings that the paper states for a method."""
    words: dict[str, None] = {}
    for key, value in figures()["base_to_new"]["settings"].get(method, {}).items():
        for run in row.runs:
            if key in run.settings and run.settings[key] != canonical(value):
                words[f"{key} is {show(run.settings[key])} here, {show(canonical(value))} in the paper"] = None
    return list(words)


def _value(entry: dict[str, float]) -> Value:
    return Value(entry["mean"], entry.get("std"))


def source_note(part: str) -> str:
    """Return a note on the source of the printed numbers in a part of the report."""
    content = figures()
    return f"Lines marked (paper) are printed numbers of {content['source']}: {content[part]['setting']}."


def setting_differs(part: str, rows: Sequence[Row], shots: int | None = None) -> list[str]:
    """Describe how our runs differ from the paper's setting."""
    printed = figures()[part]
    words = []
    if shots is not None and "shots" in printed and shots != printed["shots"]:
        words.append(f"{shots} shot{'s' * (shots != 1)} here, {printed['shots']} in the paper")
    backbones = {str(run.protocol["backbone"]) for row in rows for run in row.runs if "backbone" in run.protocol}
    others = sorted(name for name in backbones if simplify(name) != simplify(printed["backbone"]))
    if others:
        words.append(f"backbone {', '.join(others)} here, {printed['backbone']} in the paper")
    return words


def add_to_dataset_table(table: Table, dataset: str) -> bool:
    """Append the paper's lines for a dataset, and return whether there are any."""
    printed = figures()["base_to_new"]["datasets"].get(dataset)
    if printed is None:
        return False
    for method, entry in printed.items():
        values = [_value(entry[column.key]) for column in METRICS]
        other = Value(harmonic(entry["base"]["mean"], entry["new"]["mean"]))
        table.lines.append(Line(f"{method} (paper)", [*values, other, Value(text="3" if method != "CLIP" else "1")]))
        table.lines[-1].kind = "paper"
    return True


def add_to_average_table(table: Table, datasets: Sequence[str]) -> bool:
    """Append the paper's averages: as printed for its eleven datasets, otherwise computed for ours from its numbers.

    Return whether the paper has all of our datasets.
    """
    printed = figures()["base_to_new"]["datasets"]
    if any(dataset not in printed for dataset in datasets):
        return False
    whole = set(datasets) == set(printed) - {"Average"}
    for method in printed["Average"]:
        entry = printed["Average"][method]
        means = [
            entry[c.key]["mean"] if whole else mean([printed[one][method][c.key]["mean"] for one in datasets])
            for c in METRICS
        ]
        values = [Value(value) for value in means] + [Value(harmonic(means[0], means[1]))]
        words = "as printed" if whole else "computed"
        table.lines.append(Line(f"{method} (paper)", [*values, Value(text=words), Value()], "paper"))
    if not whole:
        table.caption += f" The paper's averages are computed from its numbers for these {len(datasets)} datasets."
    return True


def comparison_tables(
    rows: Sequence[Row], datasets: Sequence[str], key: str, notes: list[str], elsewhere: Collection[str] = ()
) -> list[Table]:
    """Return a table for each method of the paper: ours, the paper's and the difference, by dataset.

    Variants whose settings differ from the paper's are not compared with it; a note names the setting.

    Args:
        rows: Our rows.
        datasets: The datasets.
        key: The start of the keys of the tables.
        notes: The list to which notes are added.
        elsewhere: Labels of rows in other tables of the paper, which need no note.
    """
    printed = figures()["base_to_new"]["datasets"]
    shared = [dataset for dataset in datasets if dataset in printed]
    tables = []
    for row in rows:
        method = paper_method(row, list(printed["Average"]))
        if method is None or not shared:
            continue
        if differing := other_settings(row, method):
            if row.label not in elsewhere:
                notes.append(
                    f"{row.label} is not compared with {method} in the paper; settings differ: {differing[0]}."
                )
            continue
        lines = []
        for dataset in shared:
            values = []
            for column in METRICS:
                own, theirs = summarise(measure(row, dataset)[column.key]), _value(printed[dataset][method][column.key])
                gap = Value() if own.mean is None else Value(own.mean - (theirs.mean or 0.0))
                values += [own, theirs, gap]
            lines.append(Line(dataset, values))
        columns = []
        for column in METRICS:
            columns += [Column(column.key, f"{column.title} ours", PLAIN)]
            columns += [Column(f"{column.key}_paper", f"{column.title} paper", PLAIN)]
            columns += [Column(f"{column.key}_gap", f"Δ {column.title}", PLAIN, signed=True)]
        title = f"{row.label} next to {method} in the paper"
        caption = "Δ is ours minus the paper's."
        tables.append(Table(f"{key}-{simplify(row.label)}", title, columns, lines, first="dataset", caption=caption))
    return tables


def add_to_transfer_table(table: Table, source: str, targets: Sequence[str]) -> bool:
    """Append the paper's lines if it has the source and the targets of the table, and return whether it does."""
    printed = figures()["transfer"]
    if source != printed["source"] or any(target not in printed["datasets"]["CLIP"] for target in targets):
        return False
    whole = set(targets) == set(printed["datasets"]["CLIP"]) - {source, "Average"}
    for method, entry in printed["datasets"].items():
        summary = printed["summary"][method]
        reached = [entry[target] for target in targets]
        last = [summary["target"], summary["H"]]
        if not whole:
            last = [mean(reached), mean([harmonic(entry[source], value) for value in reached])]
        values = [Value(value) for value in [entry[source], *reached, *last]]
        table.lines.append(Line(f"{method} (paper)", [*values, Value()], "paper"))
    return True


def sessions_differ(dataset: str, rows: Sequence[Row], count: int) -> list[str]:
    """Describe why the paper's lines cannot be shown next to runs of `count` sessions; empty if they can.

    What a run does not state counts as different: the lines are for one dataset, model and choice of images.
    """
    printed = figures()["fscil"]
    wanted = {"backbone": printed["backbone"], **{f"fscil.{key}": value for key, value in printed["sessions"].items()}}
    words = (
        [] if dataset == printed["dataset"] else [f"the dataset is {dataset} here, {printed['dataset']} in the paper"]
    )
    for key, value in wanted.items():
        found = {show(run.protocol.get(key)) for row in rows for run in row.runs}
        others = sorted(text for text in found if simplify(text) != simplify(show(value)))
        if others:
            words.append(f"{key} is {', '.join(others)} here, {show(value)} in the paper")
    whole = max(len(entry.get("sessions", [])) for entry in printed["methods"].values())
    return words if count == whole else [*words, f"there are {count} sessions here, {whole} in the paper"]


def add_to_sessions_table(table: Table) -> None:
    """Append the paper's lines to a table of its sessions (see `sessions_differ`)."""
    places = [column.key for column in table.columns]
    for method, entry in figures()["fscil"]["methods"].items():
        found = {f"session_{number}": value for number, value in enumerate(entry.get("sessions", []))}
        found |= {key: entry[key] for key in ("mean", "PD") if key in entry}
        values = [Value(found[key], decimals=1) if key in found else Value() for key in places]
        table.lines.append(Line(f"{method} (paper)", values, "paper"))
