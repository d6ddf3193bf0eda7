"""The tidy frame: one row per measured value of every run below some folders. Tables and figures are pivots of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from cocoamix.errors import UserError, printable, shorten
from cocoamix.io.texts import UnreadableError
from cocoamix.run.results import RESULTS, ResultsError

from .labels import CELL, SAME, Names, label
from .records import NUMBERS, Record, UnfinishedError, facts_of, inherit_training, read_run

_SHARED = ["method", "trainer", "task", "dataset", "subset", "shots", "seed", "draw", "source", "origin"]
_BROKEN = (UserError, OSError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class LeftOut:
    """A folder that should be a run but is not shown, and why."""

    folder: str
    reason: str
    kind: str  # broken, unfinished, stopped, duplicate


@dataclass
class Frame:
    """All runs below some folders.

    Attributes:
        values: A row per measured value: what identifies its run, `session` (missing for values of a whole run),
            `metric`, `value`, and `run`, the index of `runs`.
        runs: A row per run, with what `records` lists, its `method`, and `facts`: settings and protocol under dotted
            keys.
        left_out: The folders that are not shown.
        notes: Sentences on what was averaged and what was not.
    """

    values: pd.DataFrame
    runs: pd.DataFrame
    left_out: list[LeftOut]
    notes: list[str]

    def where(self, **columns: Any) -> Frame:
        """Return the frame of the runs whose columns have these values."""
        chosen = self.runs
        for name, value in columns.items():
            chosen = chosen[chosen[name] == value]
        return self.only(chosen.index)

    def only(self, runs: pd.Index) -> Frame:
        """Return the frame of some runs."""
        return replace(self, values=self.values[self.values["run"].isin(runs)], runs=self.runs.loc[runs])


def read(folders: Sequence[str | os.PathLike[str]], names: Names = ()) -> Frame:
    """Read every run below the folders. A folder is a run if it holds results.json or a log.

    Args:
        folders: Output folders of runs, or folders above them.
        names: Pairs of a pattern and the name of the methods that match it; see `labels.label`.
    """
    records, left_out = _read_folders(folders)
    if not records:
        first = f"the first: {left_out[0].folder}: {left_out[0].reason}." if left_out else ""
        raise UserError(
            f"There is no result of a run below {', '.join(map(str, folders))}: no folder in it holds a {RESULTS} or "
            f"a finished log.txt. Give the folder that train.py wrote to (--output-dir) or one above it. {first}"
        )
    inherit_training(records)
    runs = pd.DataFrame([{**record, "facts": facts_of(record)} for record in records])
    runs = _drop_stopped(_find_sources(runs.astype(dict.fromkeys(NUMBERS, "Int64"))), left_out)
    notes = runs.pop("notes").sum()
    # Zero-shot runs have no shots. Some tasks have all numbers of shots in one table.
    shots = runs["shots"].mask(runs["task"].isin(["few-shot", "fscil"]))
    tables = runs.groupby(["task", "source", shots], dropna=False)
    runs["method"] = pd.concat([label(table, names, notes) for _, table in tables]).map(printable)
    runs = _drop_repeated(runs, left_out).reset_index(drop=True).rename_axis("run")
    if any(run.kind == "unfinished" for run in left_out):  # a log above runs belongs to a launcher, such as DePT's
        shown = {str(parent) for folder in runs["folder"] for parent in Path(folder).parents}
        left_out = [run for run in left_out if run.kind != "unfinished" or run.folder not in shown]
    return Frame(_tidy(runs), runs, left_out, [*map(printable, dict.fromkeys(notes))])


def _tidy(runs: pd.DataFrame) -> pd.DataFrame:
    values = [
        (run.Index, session, metric, value)
        for run in runs.itertuples()
        for session, metrics in [(None, run.metrics), *enumerate(run.sessions)]
        for metric, value in metrics.items()
    ]
    tidy = pd.DataFrame(values, columns=["run", "session", "metric", "value"]).astype({"session": "Int64"})
    return tidy.join(runs[_SHARED], on="run")


# ---------------------------------------------------------------------------------------- reading


def _read_folders(folders: Sequence[str | os.PathLike[str]]) -> tuple[list[Record], list[LeftOut]]:
    """Return the records of all runs below the folders, and what cannot be read."""
    records: list[Record] = []
    left_out: list[LeftOut] = []
    seen: set[str] = set()
    for root in map(Path, folders):
        if not root.is_dir():
            what = "is a file" if root.exists() else "does not exist"
            raise UserError(
                f"{shorten(str(root), 300)} {what}. Give the output folder of a run or any folder above it."
            )
        start = root.resolve()
        for folder, files in _walk(root, seen):
            try:
                record = read_run(folder, files, str(start / folder.relative_to(root)))
                records += [record] if record else []
            except UnfinishedError as error:
                left_out.append(LeftOut(printable(str(folder)), printable(str(error)), "unfinished"))
            except _BROKEN as error:
                reason = error.reason if isinstance(error, (ResultsError, UnreadableError)) else error
                file = RESULTS if RESULTS in files else "its log"
                reason = printable(f"{file} cannot be used ({reason})")
                left_out.append(LeftOut(printable(str(folder)), reason, "broken"))
    return records, left_out


def _walk(root: Path, seen: set[str]) -> Iterator[tuple[Path, list[str]]]:
    """Yield folders with results or logs. A folder that links or arguments lead to twice is yielded once."""
    for path, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(path)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "tensorboard")
        if RESULTS in files or any(name.startswith("log.txt") for name in files):
            yield Path(path), files


# ---------------------------------------------------------------------------------------- choosing


def _find_sources(runs: pd.DataFrame) -> pd.DataFrame:
    """Assign the training run of each transferred model to the transfer, as its source.

    In CoOp's layout, the model that is transferred from ImageNet looks like a few-shot run on ImageNet.
    """
    moved = runs["task"] == "transfer"
    models = runs.groupby(["trainer", "config", "variant", "shots"], dropna=False).ngroup()
    sources: dict[Any, str] = {}
    for model in models[moved].unique():
        own = runs[models == model]
        stated = own["source"][(own["task"] == "transfer") & (own["source"] != "")]
        datasets = set(own["dataset"][own["task"] == "few-shot"])
        possible = set(stated[-1:]) or datasets & {"ImageNet"} or datasets
        sources |= {model: possible.pop()} if len(possible) == 1 else {}
    only = next(iter(sources.values())) if len(set(sources.values())) == 1 else ""
    source = models.map(sources).astype(object)
    trained = (runs["task"] == "few-shot") & (runs["dataset"] == source)
    runs["source"] = runs["source"].mask(moved, source.fillna(only)).mask(trained, runs["dataset"])
    runs["task"] = runs["task"].mask(trained, "transfer")
    return runs


def _drop_stopped(runs: pd.DataFrame, left_out: list[LeftOut]) -> pd.DataFrame:
    """Leave out class-incremental runs that stopped before their last session, if there are complete ones."""
    counts = runs["sessions"].map(len)
    most = counts.where(runs["complete"]).groupby(runs["dataset"]).transform("max")
    stopped = ~runs["complete"] & (counts < most)
    for folder, count in zip(runs["folder"][stopped], counts[stopped], strict=True):
        reason = f"it stopped after session {count - 1}; the same command resumes it"
        left_out.append(LeftOut(folder, reason, "stopped"))
    return runs[~stopped]


def _drop_repeated(runs: pd.DataFrame, left_out: list[LeftOut]) -> pd.DataFrame:
    """Keep the newest of several runs with the same method, cell and seed."""
    key = ["method", "task", "source", *CELL, "seed"]
    runs = runs.sort_values(["written", "folder"])
    newest = runs.drop_duplicates(key, keep="last")
    for run in runs.drop(newest.index).merge(newest, on=key, suffixes=("", "_newer")).itertuples():
        # MaPLe's scripts evaluate base classes again, in test_base: the same result twice is no problem.
        if run.sessions != run.sessions_newer or abs(run.accuracy - run.accuracy_newer) > SAME:
            reason = f"{run.folder_newer}, which has the same method, dataset and seed, is newer and counts"
            left_out.append(LeftOut(run.folder, reason, "duplicate"))
    return newest.sort_index()
