"""Published numbers, and which of them may stand beside our runs: those whose stated settings are equal to ours.

Every file in the folder `published` has the tables of one paper. docs/REPORT.md explains how to add one.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cocoamix.errors import UserError, printable

from .frame import Frame
from .labels import show
from .logs import canonical
from .names import simplify
from .tables import Cell, Column, Row, Table

AVERAGE = "Average"  # the dataset of averages
DIFFERING = "not the paper's settings"  # the caveat of methods whose settings are those of no published row
FOLDER = Path(__file__).parent / "published"
_CELL = re.compile(r"(\d+(?:\.(\d+))?)(?: ± (\d+(?:\.\d+)?))?")
_MEASURES = ("base", "new", "H", "mean", "PD")
_OF_RUN = ("trainer", "draw", "epoch", "shots")  # columns of Frame.runs that settings may name
_IDENTITY = ("trainer", "prompts.trainer")  # methods that differ in these are not compared

Facts = Mapping[str, Any]

# ---------------------------------------------------------------------------------------- files


@dataclass(frozen=True)
class PublishedTable:
    """A published table.

    Attributes:
        values: A row per number: `method`, `dataset`, `session`, `column` (its heading), `value`, `spread` (the printed
            deviation), `decimals`, `datasets` (how many are averaged), `place` and `source_name`.
        settings: The settings that the paper states for each method.
        protocol: What a run needs for the whole table to be shown; if empty, only rows of equal settings are.
        entry: The table as in the file.
        paper: The paper's name in a sentence.
    """

    values: pd.DataFrame
    settings: Mapping[str, Facts]
    protocol: Facts
    entry: Facts
    paper: str

    @property
    def datasets(self) -> list[str]:
        """The datasets of its rows; for averages alone, those of the table that it names."""
        named = self.entry.get("averages_of")
        values = next(table.values for table in read_tables() if table.entry["name"] == named) if named else self.values
        return [name for name in values["dataset"].unique() if name != AVERAGE]

    def rows(self, datasets: Sequence[str]) -> pd.DataFrame:
        """Return the numbers for some datasets, with averages as printed or, for fewer datasets, computed from them."""
        targets = {*datasets} - {self.entry.get("source")}
        averages = self.values[self.values["dataset"].eq(AVERAGE) & (targets <= set(self.datasets))]
        if "averages_of" in self.entry:
            return averages[averages["datasets"].fillna(0) <= len(datasets)]
        parts = self.values[self.values["dataset"].isin(datasets)]
        if targets != {*self.datasets} - {self.entry.get("source")}:
            means = parts[parts["dataset"].isin(targets)].groupby(["method", "column"])["value"].mean()
            values = means.reindex(zip(averages["method"], averages["column"], strict=True)).to_numpy()
            averages = averages.assign(value=values, origin="computed").dropna(subset="value")
        return pd.concat([averages, parts])


@lru_cache(maxsize=4)
def read_tables(folder: Path = FOLDER) -> tuple[PublishedTable, ...]:
    """Return the tables in the data files of a folder."""
    tables = []
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            tables += [_table(entry, content) for entry in content["tables"]]
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: a table cannot be read ({type(error).__name__}: {error}).") from error
    return tuple(tables)


def _table(entry: Facts, content: Facts) -> PublishedTable:
    groups = content["settings"]
    settings = {method: _resolve(groups[group], groups) for method, group in entry["settings"].items()}
    protocol = _resolve(groups[entry["protocol"]], groups) if "protocol" in entry else {}
    rows = [dict(zip(entry["columns"], row, strict=True)) for row in entry["rows"]]
    values = pd.DataFrame([cell for row in rows for cell in _cells(row, entry)])
    values = values.assign(place=entry["place"], source_name=content["source"], origin="published")
    values = values.astype({"session": "Int64", "datasets": "Int64"})
    return PublishedTable(values, settings, protocol, entry, content["name"])


def _resolve(group: Facts, groups: Mapping[str, Facts]) -> dict[str, Any]:
    """Return the settings of a group and of those that it extends; null removes one."""
    like = group.get("like", [])
    facts: dict[str, Any] = {}
    for name in [like] if isinstance(like, str) else like:
        facts |= _resolve(groups[name], groups)
    facts |= {key: value for key, value in group.items() if key not in ("like", "place", "prompts")}
    if "prompts" in group:
        facts |= {f"prompts.{key}": value for key, value in _resolve(group["prompts"], groups).items()}
    return {key: value for key, value in facts.items() if value is not None}


def _cells(row: dict[str, Any], entry: Facts) -> Iterator[dict[str, Any]]:
    """Yield the numbers in a row of a file. Any column that is no measure is a dataset: its accuracy on all classes."""
    shared = {"method": row.pop("method"), "dataset": row.pop("dataset", entry.get("dataset", AVERAGE))}
    shared["datasets"] = row.pop("datasets", entry.get("datasets"))
    for column, text in row.items():
        number = _CELL.fullmatch(text)
        if text and number is None:
            raise ValueError(f"{shared['method']} has {text!r} under {column}, which is not a printed number")
        if number is None:
            continue
        session = int(column[8:]) if column.startswith("session_") else None
        measured = column in _MEASURES or session is not None
        place = {"column": column} if measured else {"column": "accuracy", "dataset": column}
        cell = {"value": float(number[1]), "spread": float(number[3] or "nan"), "decimals": len(number[2] or "")}
        yield {**shared, **cell, "session": session, **place}


# ---------------------------------------------------------------------------------------- settings


def facts_by_method(runs: pd.DataFrame) -> dict[str, list[Facts]]:
    """Return what the runs of each method state, with the facts of the runs whose prompts they build on."""
    own: dict[Any, dict[str, Any]] = {}
    for run in runs.itertuples():
        columns = {name: getattr(run, name) for name in _OF_RUN}
        own[run.Index] = {
            **run.facts,
            **{name: canonical(value) for name, value in columns.items() if value is not pd.NA},
        }
        own[run.Index] |= {"sessions": float(len(run.sessions))} if run.sessions else {}
        own[run.Index] |= {"weights": "random"} if any("random weights" in caveat for caveat in run.caveats) else {}
    makers = {(run.trainer, run.config): own[run.Index] for run in runs.itertuples()}
    methods: dict[str, list[Facts]] = {}
    for run in runs.itertuples():
        facts = dict(own[run.Index])
        for trainer, config in run.prompts:
            made = {"trainer": trainer, **makers.get((trainer, config), {})}
            facts |= {f"prompts.{key}": value for key, value in made.items()}
        methods.setdefault(str(run.method), []).append(facts)
    return methods


def differing_settings(facts: Facts, stated: Facts, paper: str = "the paper") -> list[str]:
    """Describe how the facts of a run differ from the settings that a paper states. What it lacks is different."""
    words = []
    for key, value in stated.items():
        allowed = value["any"] if isinstance(value, Mapping) and "any" in value else [value]
        own = facts.get(key)
        if not any(_form(key, own) == _form(key, other) for other in allowed):
            words.append(f"{key} is {show(own)} here, {show(canonical(allowed[0]))} in {paper}")
    return list(map(printable, words))


def _form(key: str, value: Any) -> Any:
    """Return a value in a form in which equal settings are equal. The order of several models does not matter."""
    names = key.endswith(("trainer", "backbone")) and value is not None
    return sorted(map(simplify, str(value).split("+"))) if names else canonical(value)


# ---------------------------------------------------------------------------------------- our runs


@dataclass
class Matches:
    """Published numbers beside runs of ours, with notes. None of them is averaged with ours."""

    rows: pd.DataFrame = field(default_factory=pd.DataFrame)  # with the columns of `PublishedTable.values`
    differing: dict[str, str] = field(default_factory=dict)  # how methods of ours differ from the nearest published one
    notes: list[str] = field(default_factory=list)


def match(frame: Frame) -> Matches:
    """Return the published numbers that can stand beside runs of one task and source, under one number of shots."""
    matches, rows = Matches(), []
    source = max(frame.runs["source"], default="")
    task = "transfer" if source else next(iter(frame.runs["task"]), "")
    datasets = [str(name) for name in frame.runs["dataset"].unique()]
    ours = facts_by_method(frame.runs)
    runs = [run for facts in ours.values() for run in facts]
    trained = [run for run in runs if "shots" in run] or runs
    nearest: dict[str, tuple[int, str]] = {}  # how many settings differ, and which
    for table in read_tables():
        if (task, source) != (table.entry["task"], table.entry.get("source", "")):
            continue
        where = f"{table.paper} ({table.entry['place']})"
        shown, differing = table.rows(datasets), _differing(ours, table)
        if not table.protocol:
            equal = {published for (_, published), words in differing.items() if not words}
            shown = shown[shown["method"].isin(equal - {*table.entry.get("repeats", ())})]
        if "repeats" in table.entry:  # an ablation, whose rows have names such as `None`
            shown = shown.assign(method=f"{table.entry['title']}: " + shown["method"])
        # Zero-shot runs, which have no shots, are beside runs of any number of shots.
        unlike = min((differing_settings(run, table.protocol, table.paper) for run in trained), key=len)
        if unlike and len(shown):
            matches.notes.append(f"Rows of {where} are not shown: {'; '.join(unlike)}.")
        if unlike or shown.empty:
            continue
        rows.append(shown)
        matches.notes += table.entry.get("notes", ())
        if shown["origin"].eq("computed").any():
            matches.notes.append(f"Averages of {where} are computed from its numbers for these datasets.")
        for (method, published), words in differing.items():
            text = f"{published} in {where}; settings differ: {words[0]}" if words else ""
            nearest[method] = min(nearest.get(method, (len(words), text)), (len(words), text), key=lambda pair: pair[0])
    matches.differing = {method: text for method, (_, text) in nearest.items() if text}
    matches.notes += [f"{method} is not compared with {text}." for method, text in matches.differing.items()]
    if rows:
        matches.rows = pd.concat(rows, ignore_index=True)
        for name, places in matches.rows.groupby("source_name")["place"].unique().items():
            matches.notes.insert(0, f"Published rows are numbers printed in {name} ({'; '.join(places)}).")
    elif datasets and not matches.notes:
        matches.notes.append(f"No published table has results for {', '.join(datasets)} in this task.")
    return matches


def _differing(ours: Mapping[str, Sequence[Facts]], table: PublishedTable) -> dict[tuple[str, str], list[str]]:
    """Return how our methods differ from the published ones of the same trainer."""
    differing = {}
    for (method, runs), (published, stated) in itertools.product(ours.items(), table.settings.items()):
        identity = {key: stated[key] for key in _IDENTITY if key in stated}
        if not any(differing_settings(run, identity) for run in runs):
            words = [text for run in runs for text in differing_settings(run, stated, table.paper)]
            differing[method, published] = list(dict.fromkeys(words))
    return differing


def add_published(table: Table, published: pd.DataFrame) -> None:
    """Append the published rows that have numbers for a table of ours. Rows with caveats are not bold beside them."""
    groups = published.groupby(["place", "source_name", "method"], sort=False) if len(published) else ()
    for (place, source, method), rows in groups:
        numbers = {(row.dataset, row.column): row for row in rows.itertuples()}
        cells = {column.key: numbers[_where(column)] for column in table.columns if _where(column) in numbers}
        if not cells:
            continue
        # Several tables may have a method of one name.
        labels = [f"{method} ({end})" for end in ("published", f"published, {place}", f"{place} of {source}")]
        label = next((label for label in labels if label not in table.rows), labels[-1])
        row = table.rows.setdefault(label, Row(remarks=[f"{place} of {source}"], published=True))
        for key, number in cells.items():
            spread = "" if np.isnan(number.spread) else f"{number.spread:.{number.decimals}f}"
            row.cells[key] = Cell(number.value, text=f"{number.value:.{number.decimals}f}", spread=spread)
    if table.caveats and any(row.published for row in table.rows.values()):
        for cell in (cell for row in table.rows.values() for cell in row.cells.values()):
            cell.bold = False


def _where(column: Column) -> tuple[str, str]:
    """Return the dataset and the column of published numbers that a column of ours is compared with."""
    averaged = len(column.datasets) != 1 or column.key == "target"
    return AVERAGE if averaged else column.datasets[0], "accuracy" if column.measure == "all_accuracy" else column.key
