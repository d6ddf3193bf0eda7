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

import pandas as pd

from cocoamix.errors import UserError, printable

from . import pivots
from .frame import Frame
from .labels import show
from .logs import canonical
from .names import simplify

AVERAGE = "Average"  # the dataset of averages
FOLDER = Path(__file__).parent / "published"
_CELL = re.compile(r"(\d+(?:\.(\d+))?)(?: ± (\d+(?:\.\d+)?))?")
_MEASURES = ("base", "new", "H", "mean", "PD")
_OF_RUN = ("trainer", "draw", "epoch", "shots")  # columns of Frame.runs that settings may name
_IDENTITY = ("trainer", "prompts.trainer")  # methods that differ in these are not compared

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class PublishedTable:
    """A published table.

    Attributes:
        values: A row per number: `method`, `dataset`, `task`, `source`, `session`, `value`, `table`, `column` (its
            heading), `spread` (the printed deviation), `decimals`, `seeds`, `datasets` (how many are averaged), `place`
            and `source_name`. `origin` is published, or computed for an average over fewer datasets.
        settings: The settings that the paper states for each method.
        protocol: The settings that a run needs for the table to be shown without an equal method; empty for none.
        entry: The table as in the file.
        paper: The paper's name in a sentence.
    """

    values: pd.DataFrame
    settings: Mapping[str, Facts]
    protocol: Facts
    entry: Facts
    paper: str

    @property
    def where(self) -> str:
        """Its place, for sentences."""
        return f"{self.paper} ({self.entry['place']})"

    @property
    def datasets(self) -> list[str]:
        """The datasets of its rows; for averages alone, those of the table that it names."""
        named = self.entry.get("averages_of")
        values = next(table.values for table in read_tables() if table.entry["name"] == named) if named else self.values
        return [name for name in values["dataset"].unique() if name != AVERAGE]

    def rows(self, datasets: Sequence[str]) -> pd.DataFrame:
        """Return the numbers for some datasets, with averages as printed or, for fewer datasets, computed from them."""
        known, source = set(datasets) <= set(self.datasets), self.entry.get("source")
        if "averages_of" in self.entry:
            return self.values[[known] * len(self.values)]
        parts = self.values[self.values["dataset"].isin(datasets)]
        averages = self.values[self.values["dataset"].eq(AVERAGE) & known]
        if {*datasets, source} != {*self.datasets, source}:
            means = parts[parts["dataset"].ne(source)].groupby(["method", "column"])["value"].mean()
            values = means.reindex(zip(averages["method"], averages["column"], strict=True)).to_numpy()
            averages = averages.assign(value=values, origin="computed").dropna(subset="value")
        return pd.concat([averages, parts])


# ---------------------------------------------------------------------------------------- files


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
    shared = {"task": entry["task"], "source": entry.get("source", ""), "seeds": entry.get("seeds")}
    shared |= {"table": entry["name"], "place": entry["place"], "source_name": content["source"]}
    rows = [dict(zip(entry["columns"], row, strict=True)) for row in entry["rows"]]
    values = pd.DataFrame([{**shared, **cell} for row in rows for cell in _cells(row, entry)])
    values = values.assign(origin="published").astype(dict.fromkeys(("session", "seeds", "datasets"), "Int64"))
    protocol = _resolve(groups[entry["protocol"]], groups) if "protocol" in entry else {}
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


def facts_of(run: Any) -> dict[str, Any]:
    """Return what a row of `Frame.runs` states: settings, protocol, and the columns that settings may name."""
    columns = {name: getattr(run, name) for name in _OF_RUN}
    facts = {**run.facts, **{name: canonical(value) for name, value in columns.items() if value is not pd.NA}}
    facts |= {"sessions": float(len(run.sessions))} if run.sessions else {}
    return facts | ({"weights": "random"} if any("random weights" in caveat for caveat in run.caveats) else {})


def facts_by_method(runs: pd.DataFrame) -> dict[str, list[Facts]]:
    """Return the facts of the runs of each method, with those of the runs whose prompts they build on."""
    makers = {(run.trainer, run.config): facts_of(run) for run in runs.itertuples()}
    methods: dict[str, list[Facts]] = {}
    for run in runs.itertuples():
        facts = facts_of(run)
        for trainer, config in run.prompts:
            made = {"trainer": trainer, **makers.get((trainer, config), {})}
            facts |= {f"prompts.{key}": value for key, value in made.items()}
        methods.setdefault(str(run.method), []).append(facts)
    return methods


def differing_settings(facts: Facts, stated: Facts, paper: str = "the paper") -> list[str]:
    """Describe how a run differs from stated settings. What it does not state is different.

    Args:
        facts: The facts of the run, from `facts_of`.
        stated: Settings of a published method, or the protocol of a table.
        paper: The paper's name in a sentence.
    """
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
    """Published numbers beside runs of ours. None of them is averaged with ours.

    Attributes:
        rows: The published numbers to show, with the columns of `PublishedTable.values`.
        comparisons: A row per number that a method of ours shares with a published one of equal settings: `method` is
            ours, `published_method` theirs. `difference` is missing if the two averages may be of other datasets.
        differing: How each method of ours without an equal differs from the nearest published one.
        notes: Sentences on sources, and on what differs.
    """

    rows: pd.DataFrame = field(default_factory=pd.DataFrame)
    comparisons: pd.DataFrame = field(default_factory=pd.DataFrame)
    differing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def match(frame: Frame) -> Matches:
    """Return the published numbers that can stand beside our runs.

    Args:
        frame: The runs of one part of a report: one task and source, and one number of shots with zero-shot runs.
    """
    matches = Matches()
    rows: list[pd.DataFrame] = []
    compared: list[pd.DataFrame] = []
    source = max(frame.runs["source"], default="")
    task = "transfer" if source else next(iter(frame.runs["task"]), "")
    datasets = [str(name) for name in frame.runs["dataset"].unique()]
    ours = facts_by_method(frame.runs)
    runs = [run for facts in ours.values() for run in facts]
    nearest: dict[str, tuple[int, str]] = {}
    for table in read_tables():
        if (task, source) != (table.entry["task"], table.entry.get("source", "")):
            continue
        shown, differing = table.rows(datasets), _differing(ours, table)
        means = _means(frame.values, table, datasets)
        pairs = {pair: _compare(means, shown, *pair) for pair, words in differing.items() if not words}
        repeated = table.entry.get("repeats", ())
        if table.protocol and len(shown):
            # Zero-shot runs, which have no shots, are beside runs of any number of shots.
            trained = [run for run in runs if "shots" in run] or runs
            words = min((differing_settings(run, table.protocol, table.paper) for run in trained), key=len)
            if words:
                matches.notes.append(f"Rows of {table.where} are not shown: {'; '.join(words)}.")
                continue
        elif all(rows.empty or published in repeated for (_, published), rows in pairs.items()):
            continue
        rows.append(shown)
        compared += pairs.values()
        matches.notes += table.entry.get("notes", ())
        if shown["origin"].eq("computed").any():
            matches.notes.append(f"Averages of {table.where} are computed from its numbers for these datasets.")
        for (method, published), words in differing.items():
            text = f"{published} in {table.where}; settings differ: {words[0]}" if words else ""
            nearest[method] = min(nearest.get(method, (len(words), text)), (len(words), text), key=lambda pair: pair[0])
    matches.differing = {method: text for method, (_, text) in nearest.items() if text}
    matches.notes += [f"{method} is not compared with {text}." for method, text in matches.differing.items()]
    if rows:
        matches.rows, matches.comparisons = pd.concat(rows, ignore_index=True), pd.concat(compared or [pd.DataFrame()])
        for name, places in matches.rows.groupby("source_name")["place"].unique().items():
            matches.notes.insert(0, f"Published rows are numbers printed in {name} ({'; '.join(places)}).")
    elif datasets and not matches.notes:
        matches.notes.append(f"No published table has results for {', '.join(datasets)} in this task.")
    return matches


def _differing(ours: Mapping[str, Sequence[Facts]], table: PublishedTable) -> dict[tuple[str, str], list[str]]:
    """Return how our methods differ from the published ones of the same trainer."""
    found = {}
    for (method, runs), (published, stated) in itertools.product(ours.items(), table.settings.items()):
        identity = {key: stated[key] for key in _IDENTITY if key in stated}
        if not any(differing_settings(run, identity) for run in runs):
            words = [text for run in runs for text in differing_settings(run, stated, table.paper)]
            found[method, published] = list(dict.fromkeys(words))
    return found


def _compare(means: pd.DataFrame, rows: pd.DataFrame, method: str, published: str) -> pd.DataFrame:
    """Return a method of ours beside a published one. Averages over more datasets than ours are left out."""
    count = means.attrs["datasets"]
    theirs = rows[rows["method"].eq(published) & (rows["datasets"].fillna(0) <= count)]
    theirs = theirs.rename(columns={"method": "published_method", "value": "published"})
    both = means[means["method"].eq(method)].merge(theirs, on=["dataset", "column"])
    same = both["datasets"].isna() | (both["datasets"].eq(count) & (count == means.attrs["published"]))
    return both.assign(difference=(both["ours"] - both["published"]).where(same))


def _means(values: pd.DataFrame, table: PublishedTable, datasets: Sequence[str]) -> pd.DataFrame:
    """Return our means over seeds and over datasets: a row per method, dataset and column of published tables."""
    source = table.entry.get("source")
    if source:
        targets = [name for name in datasets if name != source]
        means = pivots.transfer(values, source, targets).groupby(level="method").mean().reset_index()
        means = means.melt("method", var_name="dataset", value_name="ours")
        means["column"] = means["dataset"].where(means["dataset"].eq("H"), "accuracy")
        means["dataset"] = means["dataset"].replace({"target": AVERAGE, "H": AVERAGE})
    else:
        wide = pivots.over_sessions(values) if table.entry["task"] == "fscil" else pivots.base_to_new(values)
        wide = wide.rename(columns=lambda name: name if isinstance(name, str) else f"session_{name}")
        parts = {**{name: [name] for name in datasets}, AVERAGE: datasets}
        places = {name: pivots.over_datasets(wide, names)["mean"] for name, names in parts.items()}
        means = pd.concat(places, names=["dataset"]).reset_index()
        means = means.melt(["method", "dataset"], var_name="column", value_name="ours").dropna(subset="ours")
    means.attrs = {"datasets": len(datasets), "published": len(table.datasets)}
    return means
