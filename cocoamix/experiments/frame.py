"""The tidy frame: one row per measured value of every run below some folders. Tables and figures are pivots of it."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from cocoamix.errors import UserError, printable, shorten
from cocoamix.io.texts import UnreadableError
from cocoamix.run.predictions import FILE as PREDICTIONS
from cocoamix.run.results import RESULTS, ResultsError

from .labels import Names, label, same_result
from .logs import list_logs, read_log
from .names import is_zero_shot
from .paths import Place, read_path
from .records import Record, complete, drop_training, from_log, from_results, inherit_training

COLUMNS = (
    *("method", "trainer", "task", "dataset", "subset", "shots", "seed", "draw", "source"),
    *("session", "metric", "value", "origin", "run"),
)
_SHARED = COLUMNS[:9]  # columns that the values of a run have in common
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
        values: A row per measured value, with COLUMNS. `session` is missing for values of a whole run. `run` is the
            index of `runs`.
        runs: A row per run, with the fields of `Record`, and `facts`: settings and protocol under dotted keys.
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
    reader = _Reader()
    for above, folder in enumerate(folders):
        reader.read(Path(folder), above)
    if not reader.records and not reader.left_out:
        raise UserError(
            f"There is no run below {', '.join(map(str, folders))}: no folder in it holds a {RESULTS} or a log.txt. "
            "Give the folder that train.py wrote to (--output-dir) or one above it."
        )
    inherit_training(reader.records)
    records = _drop_stopped(find_sources(reader.records), reader.left_out)
    for table in _tables(records).values():
        label(table, names, reader.notes.append)
    records = _drop_repeated(records, reader.left_out)
    shown = {str(parent) for record in records for parent in Path(record.folder).parents}
    # A log above runs belongs to a launcher, such as DePT's.
    left_out = [run for run in reader.left_out if run.kind != "unfinished" or run.folder not in shown]
    return frame_of(records, list(dict.fromkeys(left_out)), list(dict.fromkeys(reader.notes)))


def frame_of(records: Sequence[Record], left_out: list[LeftOut], notes: list[str]) -> Frame:
    """Return the frame of labelled records. Names come from any file, so control characters are escaped."""
    rows = []
    for record in records:
        row = {field.name: getattr(record, field.name) for field in fields(Record)}
        rows.append({**row, **{key: printable(row[key]) for key in ("folder", "method", "config", "variant")}})
    runs = pd.DataFrame(rows, columns=[field.name for field in fields(Record)])
    runs = runs.astype(dict.fromkeys(("shots", "seed", "epoch", "parameters", "images"), "Int64"))
    runs["facts"] = [{**record.protocol, **record.settings} for record in records]
    runs.index.name = "run"
    values = [
        (run, session, metric, value)
        for run, record in enumerate(records)
        for session, metrics in [(None, record.metrics), *enumerate(record.sessions)]
        for metric, value in metrics.items()
    ]
    tidy = pd.DataFrame(values, columns=["run", "session", "metric", "value"]).astype({"session": "Int64"})
    tidy = tidy.join(runs[[*_SHARED, "origin"]], on="run")[list(COLUMNS)]
    notes, left_out = (
        [printable(note) for note in notes],
        [LeftOut(printable(run.folder), printable(run.reason), run.kind) for run in left_out],
    )
    return Frame(tidy, runs, left_out, notes)


# ---------------------------------------------------------------------------------------- reading


class _Reader:
    """Collects the records below folders."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.left_out: list[LeftOut] = []
        self.notes: list[str] = []
        self._seen: set[str] = set()

    def read(self, root: Path, above: int) -> None:
        if not os.path.isdir(root):
            what = "is a file" if os.path.exists(root) else "does not exist"
            raise UserError(
                f"{shorten(str(root), 300)} {what}. Give the output folder of a run or any folder above it, "
                "such as output/."
            )
        start = root.resolve().parts
        for folder, names in self._walk(root):
            place = read_path(start + folder.relative_to(root).parts)
            try:
                record = self._read_run(folder, names, place, above)
            except _BROKEN as error:
                reason = error.reason if isinstance(error, (ResultsError, UnreadableError)) else str(error)
                file = RESULTS if RESULTS in names else "its log"
                self.left_out.append(LeftOut(str(folder), f"{file} cannot be used ({reason})", "broken"))
                continue
            if record is not None:
                self._add(record)

    def _walk(self, root: Path) -> Iterator[tuple[Path, list[str]]]:
        """Yield folders with results or logs. A folder that links or arguments lead to twice is yielded once."""
        for path, folders, names in os.walk(root, followlinks=True):
            real = os.path.realpath(path)
            if real in self._seen:
                folders.clear()
                continue
            self._seen.add(real)
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "tensorboard")
            if RESULTS in names or any(name.startswith("log.txt") for name in names):
                yield Path(path), names

    def _read_run(self, folder: Path, names: list[str], place: Place, above: int) -> Record | None:
        logs = list_logs(folder, names)
        if RESULTS in names:
            record = from_results(folder, place, above)
            if (not place.task or not place.config) and logs:  # only the command line names what the path does not
                complete(record, read_log(logs[-1]).arguments)
            return record
        reason = ""
        for path in reversed(logs):  # the newest that has a result
            log = read_log(path)
            if log.metrics:
                record = from_log(folder, path, log, place, above)
                complete(record, log.arguments)
                if reason:
                    self.notes.append(f"{folder}: {reason}; the result of the earlier {path.name} is used.")
                return record
            reason = reason or f"{path.name}: {log.unfinished}"
        if logs:
            self.left_out.append(LeftOut(str(folder), reason, "unfinished"))
        return None

    def _add(self, record: Record) -> None:
        """Add a record with its task, without metrics that are not finite and without what it cannot depend on."""
        if record.task != "fscil":
            if record.subset in ("base", "new"):
                record.task = "base2new"
            elif record.source and record.source != record.dataset:
                record.task = "transfer"
            record.task = record.task or "few-shot"
        drop_training(record)
        infinite = [name for name, value in record.metrics.items() if not math.isfinite(value)]
        if infinite:
            self.notes.append(f"{record.folder}: {', '.join(infinite)} is not finite and is left out.")
        record.metrics = {name: value for name, value in record.metrics.items() if name not in infinite}
        unreadable = record.protocol.get("unreadable_images")
        if unreadable:
            self.notes.append(f"{record.folder}: {unreadable:,.0f} images could not be read and were left out of it.")
        self.records.append(record)


# ---------------------------------------------------------------------------------------- choosing


def _tables(records: Sequence[Record]) -> dict[Any, list[Record]]:
    """Group the records whose methods need names of their own. Zero-shot runs are in the tables of all shots."""
    tables: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        shots = None if record.task in ("few-shot", "fscil") else record.shots
        tables[record.task, record.source if record.task == "transfer" else "", shots].append(record)
    return tables


def _drop_stopped(records: Sequence[Record], left_out: list[LeftOut]) -> list[Record]:
    """Leave out class-incremental runs that stopped before their last session, if there are complete ones."""
    most: dict[str, int] = defaultdict(int)
    for record in records:
        if record.complete:
            most[record.dataset] = max(most[record.dataset], len(record.sessions))
    kept = []
    for record in records:
        if record.complete or len(record.sessions) >= most[record.dataset]:
            kept.append(record)
            continue
        reason = f"it stopped after session {len(record.sessions) - 1}; the same command resumes it"
        left_out.append(LeftOut(record.folder, reason, "stopped"))
    return kept


def _drop_repeated(records: Sequence[Record], left_out: list[LeftOut]) -> list[Record]:
    """Keep the newest of several runs with the same method, dataset, subset and seed."""
    newest: dict[Any, Record] = {}
    # Sorted, so that the result does not depend on the order in which folders are read.
    for record in sorted(records, key=lambda r: (r.written, r.folder)):
        shots = None if is_zero_shot(record.trainer) else record.shots
        place = (record.task, record.source, record.dataset, record.subset, record.draw)
        key = (record.method, *place, shots, record.seed)
        older = newest.get(key)
        # MaPLe's scripts evaluate base classes again, in test_base: the same result twice is no problem.
        if older is not None and same_result(record, older) and _has_predictions(older) > _has_predictions(record):
            continue
        if older is not None and not same_result(record, older):
            reason = f"another run, {record.folder}, has the same method, dataset and seed and is newer, so it counts"
            left_out.append(LeftOut(older.folder, reason, "duplicate"))
        newest[key] = record
    return sorted(newest.values(), key=lambda r: (r.above, r.folder))


def _has_predictions(record: Record) -> bool:
    return Path(record.folder, PREDICTIONS).is_file()


def find_sources(records: Sequence[Record]) -> list[Record]:
    """Assign the training run of each transferred model to the transfer, as its source.

    In CoOp's layout, the model that is transferred from ImageNet looks like a few-shot run on ImageNet.
    """

    def model(record: Record) -> tuple[Any, ...]:
        return (record.trainer, record.config, record.variant, record.shots)

    moved = {model(record) for record in records if record.task == "transfer"}
    sources = {model(r): r.source for r in records if r.task == "transfer" and r.source}
    for key in moved - set(sources):
        datasets = {r.dataset for r in records if r.task == "few-shot" and model(r) == key}
        if "ImageNet" in datasets or len(datasets) == 1:
            sources[key] = "ImageNet" if "ImageNet" in datasets else datasets.pop()
    only = next(iter(sources.values())) if len(set(sources.values())) == 1 else ""
    for record in records:
        if record.task == "transfer":
            record.source = sources.get(model(record), only)
        elif record.task == "few-shot" and sources.get(model(record)) == record.dataset:
            record.task, record.source = "transfer", record.dataset
    return list(records)
