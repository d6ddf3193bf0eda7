"""Name the method of each run, so that runs which may not be averaged have different names.

The name is that of the trainer, or the user's, followed by whatever differs among the runs, in brackets. Runs of one
name on one dataset, subset and partition of the classes differ in the seed alone.
"""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from cocoamix.config import roles

from .logs import canonical
from .names import is_zero_shot, method_name
from .records import Record

# Facts of the protocol that prevent a comparison of two accuracies on the same classes, as a note names them.
COMPARABLE = (
    *("splits.test", "evaluated_on", "backbone", "weights_sha256", "activation"),
    *("transforms.SIZE", "transforms.INTERPOLATION", "transforms.PIXEL_MEAN", "transforms.PIXEL_STD"),
)
_OF_CELL = ("splits.test", "templates")  # facts that depend on the dataset
_FREE = ("dataset", "subset", "shots", "splits.train", "splits.folds", "centred", "calibrated")  # by design, by seed
_UNSTATED = "not stated"  # the value of a fact that our own results do not state
_LONGEST = 24  # characters of a value in a name
_MOST_FACTS = 3  # in a name
_SAME = 0.06  # points by which equal accuracies may differ, because logs have one decimal

Names = Sequence[tuple[str, str]]
Key = Callable[[Record], Hashable]
Facts = dict[int, dict[str, Any]]  # by the id of a record


def label(records: Sequence[Record], names: Names, note: Callable[[str], None]) -> None:
    """Set `method` of all records.

    Args:
        records: The records of one table: one task, and one number of shots where tables have one.
        names: Pairs of a pattern, matched against Trainer/config and Trainer/config/variant, and a name.
        note: Receives sentences on runs of one configuration that are not averaged, and why.
    """
    for (name, is_users), members in _by(records, lambda record: _name(record, names)).items():
        facts = _facts_of(members)
        keys = _differing(members, facts, is_users)
        for key in keys:
            _note_difference(name, key, members, facts, note)
        kinds: dict[tuple[Any, ...], list[Record]] = {}
        for record in members:
            kinds.setdefault(tuple(facts[id(record)].get(key) for key in keys), []).append(record)
        for suffix, kind in zip(_describe(keys, list(kinds)), kinds.values(), strict=True):
            for folder, part in _split_by_folder(kind):
                words = ", ".join(filter(None, (suffix, folder)))
                for record in part:
                    record.method = f"{name} [{words}]" if words else name
                silent = [record.folder for record in part if not record.protocol]
                if 0 < len(silent) < len(part):
                    note(f"{name}: {silent[0]} states no protocol; it is assumed to be that of the other runs.")


def _name(record: Record, names: Names) -> tuple[str, bool]:
    """Return the name of a record's method, and whether the user has chosen it."""
    short = f"{record.trainer}/{record.config}"
    for pattern, name in names:
        if any(fnmatch.fnmatchcase(text, pattern) for text in (f"{short}/{record.variant}", short, record.trainer)):
            return name, True
    return record.title or method_name(record.trainer), False


def _by(records: Iterable[Record], key: Key) -> dict[Any, list[Record]]:
    groups: dict[Hashable, list[Record]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return dict(groups)


# ---------------------------------------------------------------------------------------- what differs


def _facts_of(records: Sequence[Record]) -> Facts:
    """Return what must agree among runs that are averaged; a fact that a log does not state is missing."""
    facts: Facts = {}
    for record in records:
        trained = {} if record.epoch is None or is_zero_shot(record.trainer) else {"epoch": record.epoch}
        # If a log prints no configuration, its name stands for it.
        settings = record.settings or ({} if is_zero_shot(record.trainer) else {"config": record.config})
        facts[id(record)] = {**record.protocol, **settings, **trained}
    # Our own results state their whole protocol: what they lack does not hold for them.
    stated = dict.fromkeys(key for record in records if record.fingerprint for key in record.protocol)
    for record in records:
        if record.fingerprint:
            facts[id(record)] = {**dict.fromkeys(stated, _UNSTATED), **facts[id(record)]}
    # Hashes of different datasets cannot be compared: number them within each cell.
    for key in _OF_CELL:
        for cell in _by(records, _cell).values():
            values = [facts[id(record)].get(key) for record in cell]
            order = [value for value in dict.fromkeys(values) if value is not None]
            for record, value in zip(cell, values, strict=True):
                facts[id(record)][key] = None if value is None else 1 + order.index(value)
    return facts


def _differing(records: Sequence[Record], facts: Facts, is_users: bool) -> list[str]:
    """Return the facts on which runs that must agree do not, as far as both state them.

    A user who names a method may have trained it with another setting on another dataset.
    """

    def disagree(group: Iterable[Record], key: str) -> bool:
        values = {facts[id(record)].get(key) for record in group}
        return len(values - {None, "auto"}) > 1

    # Settings before facts that follow from them, because names use the first.
    every = sorted(dict.fromkeys(key for record in records for key in facts[id(record)]), key=str.islower)
    return [
        key
        for key in every
        if key not in _FREE
        and disagree(records, key)
        and any(disagree(group, key) for scope in _scopes(key, is_users) for group in _by(records, scope).values())
    ]


def _scopes(key: str, is_users: bool) -> list[Key]:
    """Return keys that group the runs which must agree on a fact."""
    setting = key.isupper()
    scopes: list[Key] = [_cell]
    if setting and not is_users and not key.startswith("DATASET."):
        scopes = [lambda record: (record.subset, record.shots)]  # an evaluation need not repeat what only the loss uses
    elif not setting and key not in (*_OF_CELL, "epoch", "config"):
        scopes = [lambda record: 0]
    return [*scopes, _model] if key == "epoch" or (setting and roles.compared_in_model(key)) else scopes


def _cell(record: Record) -> Hashable:
    return (record.dataset, record.subset, record.draw, record.shots)


def _model(record: Record) -> Hashable:
    """Return what the results that are combined as if of one model have in common: base and new, source and targets."""
    if record.task == "transfer" and not is_zero_shot(record.trainer):
        return "transfer"
    return (record.dataset, record.draw) if record.task == "base2new" and record.subset != "all" else id(record)


def _describe(keys: Sequence[str], kinds: Sequence[tuple[Any, ...]]) -> list[str]:
    """Describe kinds of runs by the fewest facts that tell them apart, without values that are the default."""
    kept = list(range(len(keys)))
    for place in reversed(range(len(keys))):
        fewer = [other for other in kept if other != place]
        if len({tuple(values[other] for other in fewer) for values in kinds}) == len(kinds):
            kept = fewer
    facts = [[(keys[place], values[place]) for place in kept] for values in kinds]
    special = [[(key, value) for key, value in kind if value not in (_default(key), _UNSTATED)] for kind in facts]
    for candidates in (special, facts):
        texts = [", ".join(f"{_short(key)}={_cut(show(value))}" for key, value in kind) for kind in candidates]
        if len(set(texts)) == len(texts) and max(map(len, candidates)) <= _MOST_FACTS:
            return texts
    return [f"kind {number}" for number in range(1, len(kinds) + 1)]


def _default(key: str) -> Any:
    """Return the default of a key that this project declares, as records state it; None if it is not known."""
    declared = roles.find(key)
    return canonical(declared.default) if declared.ours else None


def _note_difference(name: str, key: str, records: Sequence[Record], facts: Facts, note: Callable[[str], None]) -> None:
    """Note two runs of one configuration that differ in a fact. Other configurations differ on purpose."""
    for alike in _by(records, lambda record: (record.config, record.variant)).values():
        first = {facts[id(record)].get(key): record for record in reversed(alike)}
        if len(first) > 1:
            (value, record), (other, second) = list(first.items())[-2:]
            note(
                f"{name}: {key} is {show(value)} in {record.folder} and {show(other)} in {second.folder}. Runs that "
                "differ in it are not averaged; each kind has its own row."
            )
            return


# ---------------------------------------------------------------------------------------- folders


def _split_by_folder(records: list[Record]) -> list[tuple[str, list[Record]]]:
    """Divide runs with the same cell and seed by the folder below which they are, else by their configuration."""
    for key in (lambda record: record.rest, lambda record: (record.config, record.variant)):
        groups = _by(records, key)
        if len(groups) > 1 and _clash(records) and not any(map(_clash, groups.values())):
            return list(zip(_tell_apart(list(groups)), groups.values(), strict=True))
    return [("", records)]


def _tell_apart(paths: Sequence[Sequence[str]]) -> list[str]:
    """Return the parts of paths that tell them apart."""
    parts = [list(path) for path in paths]
    for end in (0, -1):
        while parts[0] and all(part and part[end] == parts[0][end] for part in parts):
            parts = [part[1:] if end == 0 else part[:-1] for part in parts]
    return ["/".join(filter(None, part)) or f"folder {number}" for number, part in enumerate(parts, start=1)]


def _clash(records: Iterable[Record]) -> bool:
    """Return whether two runs have the same cell and seed. Equal zero-shot results may occur several times."""
    first: dict[Hashable, Record] = {}
    for record in records:
        other = first.setdefault((_cell(record), record.seed), record)
        if other is not record and not (is_zero_shot(record.trainer) and same_result(record, other)):
            return True
    return False


def same_result(record: Record, other: Record) -> bool:
    """Return whether two runs have equal results, at the precision of logs."""
    return record.sessions == other.sessions and abs(record.accuracy - other.accuracy) <= _SAME


def not_comparable(record: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Return the facts that prevent a comparison of two runs on the same classes, as (key, value, value)."""
    pairs = [("partition", record.draw, other.draw)]
    pairs += [(key, record.protocol.get(key), other.protocol.get(key)) for key in COMPARABLE]
    return [pair for pair in pairs if None not in pair[1:] and pair[1] != pair[2]]


def show(value: Any) -> str:
    """Return a value of a configuration as a user would write it."""
    if isinstance(value, float) and abs(value) < 1e15 and value == int(value):
        return str(int(value))
    if isinstance(value, tuple):
        return "(" + ", ".join(map(show, value)) + ")"
    if value is None:
        return "not stated"
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{32,}", value):
        return value[:12]  # enough of a hash
    return str(value) if str(value) else "empty"


def _short(key: str) -> str:
    return key.rsplit(".", 1)[-1] if key.isupper() else key


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
