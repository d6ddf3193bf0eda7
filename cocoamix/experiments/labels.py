"""Name the method of each run, so that runs which may not be averaged have different names.

The name is that of the trainer, or the user's, followed by whatever differs among the runs found, in brackets. Runs of
one name on one dataset, subset and partition of the classes differ in the seed alone.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
# Facts that depend on the dataset: they are compared among the runs of one dataset and subset.
_OF_CELL = ("splits.test", "templates", "fingerprint")
# Facts that differ by design.
_FREE = ("dataset", "subset", "shots", "splits.train", "splits.folds")
# Facts that are stated only where they apply.
_WHERE_TRUE = ("centred", "calibrated")
_LONGEST = 24  # characters of a value in a name
_MOST_FACTS = 3  # in a name
_SAME = 0.06  # points by which equal accuracies may differ, because logs have one decimal

Names = Sequence[tuple[str, str]]
Facts = Callable[[Record], Mapping[str, Any]]


def label(records: Sequence[Record], names: Names, note: Callable[[str], None]) -> None:
    """Set `method` of all records.

    Args:
        records: The records of one table: one task, and one number of shots where tables have one.
        names: Pairs of a pattern, matched against Trainer/config and Trainer/config/variant, and a name.
        note: Receives sentences on which runs were not averaged, and why.
    """
    for (name, is_users), members in _by(records, lambda record: _name(record, names)).items():
        for suffix, part in _split(name, members, is_users, note):
            text = f"{name} [{suffix}]" if suffix else name
            _note_unstated(text, part, note)
            for record in part:
                record.method = text


def _name(record: Record, names: Names) -> tuple[str, bool]:
    """Return the name of a record's method, and whether the user has chosen it."""
    full = "/".join(part for part in (record.trainer, record.config, record.variant) if part)
    for pattern, name in names:
        texts = (full, f"{record.trainer}/{record.config}", record.trainer)
        if any(fnmatch.fnmatchcase(text, pattern) for text in texts):
            return name, True
    return record.title or method_name(record.trainer), False


# ---------------------------------------------------------------------------------------- what differs


def _split(
    name: str, records: list[Record], is_users: bool, note: Callable[[str], None]
) -> list[tuple[str, list[Record]]]:
    """Divide the runs of a method, so that those of one cell differ only in the seed.

    A user who names a method may have trained it with another setting on another dataset.

    Returns:
        Pairs of a suffix for the name, which says what differs, and the runs.
    """
    cells = list(_by(records, _cell).values())
    subsets = cells if is_users else list(_by(records, lambda record: (record.subset, record.shots)).values())
    trained = [record for record in records if not is_zero_shot(record.trainer)]
    requirements: list[tuple[list[list[Record]], Facts]] = [
        ([records], _facts_of_row),
        (cells, _facts_of_cell),
        (subsets, _facts_of_training),
        (list(_by(trained, _model).values()), _training),
    ]
    keys = list(dict.fromkeys(key for groups, facts in requirements for key in _differing(groups, facts)))
    if any(_hidden_difference(cell, keys) for cell in cells):
        keys.append("fingerprint")
    for key in keys:
        _note_difference(name, key, [group for groups, _ in requirements for group in groups], note)
    ranks = {key: _ranks(cells, key) for key in keys if key in _OF_CELL}
    parts = _by(records, lambda r: tuple(ranks[key][id(r)] if key in ranks else _fact(r, key) for key in keys))
    split = []
    for text, part in zip(_describe(keys, list(parts)), parts.values(), strict=True):
        split += [(", ".join(filter(None, (text, folder))), few) for folder, few in _split_by_folder(part)]
    return split


def _by(records: Iterable[Record], key: Callable[[Record], Hashable]) -> dict[Any, list[Record]]:
    groups: dict[Hashable, list[Record]] = defaultdict(list)
    for record in records:
        groups[key(record)].append(record)
    return dict(groups)


def _cell(record: Record) -> Hashable:
    return (record.dataset, record.subset, record.draw, record.shots)


def _model(record: Record) -> Hashable:
    """Return what the results that are combined as if of one model have in common: base and new, source and targets."""
    if record.task == "transfer":
        return "transfer"
    return (record.dataset, record.draw) if record.task == "base2new" and record.subset != "all" else id(record)


def _facts_of_row(record: Record) -> dict[str, Any]:
    return {
        key: value
        for key, value in record.protocol.items()
        if key not in (*_FREE, *_OF_CELL) and not (key == "precision" and value == "auto")
    }


def _facts_of_cell(record: Record) -> dict[str, Any]:
    """Return facts and settings that may depend on the dataset."""
    facts = {key: record.protocol[key] for key in _OF_CELL if key in record.protocol}
    return {**facts, **{key: value for key, value in record.settings.items() if key.startswith("DATASET.")}}


def _facts_of_training(record: Record) -> dict[str, Any]:
    """Return all other settings. If a log prints none, the name of the configuration stands for them."""
    settings = {key: value for key, value in record.settings.items() if not key.startswith("DATASET.")}
    return settings if settings or is_zero_shot(record.trainer) else {"config": record.config}


def _training(record: Record) -> dict[str, Any]:
    """Return what a run states about its model. All runs of one model must agree on it."""
    stated = {key: value for key, value in record.settings.items() if roles.compared_in_model(key)}
    return stated if record.epoch is None else {**stated, "epoch": record.epoch}


def _differing(groups: Iterable[list[Record]], facts: Facts) -> dict[str, None]:
    """Return the keys on which runs of the same group disagree, of those that both state."""
    keys: dict[str, None] = {}
    for group in groups:
        first: dict[str, Any] = {}
        for record in group if len(group) > 1 else ():
            for key, value in facts(record).items():
                if first.setdefault(key, value) != value:
                    keys[key] = None
    return keys


def _hidden_difference(cell: Iterable[Record], keys: Sequence[str]) -> bool:
    """Return whether runs of a cell have different fingerprints, although they agree on all keys."""
    first: dict[Hashable, str] = {}
    for record in cell:
        fingerprint = _fingerprint(record)
        stated = tuple(_fact(record, key) for key in (*keys, *_WHERE_TRUE))
        if fingerprint and first.setdefault(stated, fingerprint) != fingerprint:
            return True
    return False


def _fingerprint(record: Record) -> str:
    """Return the fingerprint of a run's protocol. For a zero-shot run, facts that only training reads are ignored."""
    if not record.fingerprint or not is_zero_shot(record.trainer):
        return record.fingerprint
    facts = sorted((key, value) for key, value in record.protocol.items() if key not in ("dataset", "subset"))
    return hashlib.sha256(repr(facts).encode(errors="replace")).hexdigest()[:16]


def _fact(record: Record, key: str) -> Any:
    if key in ("epoch", "config"):
        return getattr(record, key)
    if key == "fingerprint":
        return _fingerprint(record)
    return record.settings.get(key, record.protocol.get(key))


def _ranks(cells: Iterable[list[Record]], key: str) -> dict[int, int]:
    """Number the values of a fact within each cell, because hashes of different datasets cannot be compared."""
    ranks: dict[int, int] = {}
    for cell in cells:
        order = list(dict.fromkeys(_fact(record, key) for record in cell))
        ranks |= {id(record): 1 + order.index(_fact(record, key)) for record in cell}
    return ranks


def _describe(keys: Sequence[str], groups: Sequence[tuple[Any, ...]]) -> list[str]:
    """Describe groups by the fewest differing facts that tell them apart, without values that are the default."""
    kept = list(range(len(keys)))
    for place in reversed(range(len(keys))):
        fewer = [other for other in kept if other != place]
        if len({tuple(values[other] for other in fewer) for values in groups}) == len(groups):
            kept = fewer
    facts = [[(keys[place], values[place]) for place in kept] for values in groups]
    special = [[(key, value) for key, value in group if value != _default(key)] for group in facts]
    for candidates in (special, facts):
        texts = [", ".join(f"{_short(key)}={_cut(show(value))}" for key, value in group) for group in candidates]
        if len(set(texts)) == len(texts) and max(map(len, candidates)) <= _MOST_FACTS:
            return texts
    return [f"kind {number}" for number in range(1, len(groups) + 1)]


def _default(key: str) -> Any:
    """Return the default of a key that this project declares, as records state it; None if it is not known."""
    declared = roles.find(key)
    return canonical(declared.default) if declared.ours else None


# ---------------------------------------------------------------------------------------- folders


def _split_by_folder(records: list[Record]) -> list[tuple[str, list[Record]]]:
    """Divide runs with the same cell and seed by the folder below which they are, else by their configuration."""
    keys: tuple[Callable[[Record], Any], ...] = (
        lambda r: r.above,
        lambda r: r.rest,
        lambda r: (r.config, r.variant),
    )
    for key in keys if _clash(records) else ():
        groups = list(_by(records, key).values())
        if len(groups) > 1 and not any(map(_clash, groups)):
            tails = [[group[0].config, group[0].variant] if key is keys[2] else group[0].rest for group in groups]
            return list(zip(_folder_names(tails), groups, strict=True))
    return [("", records)]


def _folder_names(tails: Sequence[Sequence[str]]) -> list[str]:
    """Return the parts of paths that tell groups apart."""
    parts = [list(tail) for tail in tails]
    while parts[0] and all(part[:1] == parts[0][:1] for part in parts):
        parts = [part[1:] for part in parts]
    while parts[0] and all(part[-1:] == parts[0][-1:] for part in parts):
        parts = [part[:-1] for part in parts]
    names = ["/".join(filter(None, part)) or f"folder {number}" for number, part in enumerate(parts, start=1)]
    return names if len(set(names)) == len(names) else [f"folder {number}" for number in range(1, len(names) + 1)]


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


def not_comparable(record: Record, other: Record) -> list[tuple[str, Any, Any]]:
    """Return the facts that prevent a comparison of two runs on the same classes, as (key, value, value)."""
    pairs: list[tuple[str, Any, Any]] = [("partition", record.draw, other.draw)]
    pairs += [(key, record.protocol.get(key), other.protocol.get(key)) for key in COMPARABLE]
    return [pair for pair in pairs if None not in pair[1:] and pair[1] != pair[2]]


# ---------------------------------------------------------------------------------------- notes


def _note_difference(name: str, key: str, groups: Iterable[list[Record]], note: Callable[[str], None]) -> None:
    """Note an example of two runs of one configuration that differ in a fact. Other configurations differ on purpose."""
    alike = [few for group in groups for few in _by(group, lambda r: (r.config, r.variant)).values()]
    for group in alike:
        first: dict[Any, Record] = {}
        for record in group:
            if _fact(record, key) is not None:
                first.setdefault(_fact(record, key), record)
        if len(first) < 2:
            continue
        (value, record), (other, second) = list(first.items())[:2]
        tail = f" ({len(first)} values in all)" if len(first) > 2 else ""
        if key == "fingerprint":
            only = sorted(set(record.protocol) ^ set(second.protocol))
            tail = f" (only one of them states {', '.join(only)})" if only else " (everything that they state agrees)"
        note(
            f"{name}: {key} is {show(value)} in {record.folder} and {show(other)} in {second.folder}{tail}. "
            "Runs that differ in it are not averaged; each kind has its own row."
        )
        return


def _note_unstated(name: str, records: Sequence[Record], note: Callable[[str], None]) -> None:
    """Note which facts only some runs of a row state. The runs are averaged nevertheless."""
    stated = dict.fromkeys(key for r in records for key in r.protocol if key not in (*_FREE, *_WHERE_TRUE))
    silent = [(r, [key for key in stated if key not in r.protocol]) for r in records]
    silent = [(record, lacking) for record, lacking in silent if lacking]
    if not silent:
        return
    record, lacking = silent[0]
    lacking.sort(key=lambda key: COMPARABLE.index(key) if key in COMPARABLE else len(COMPARABLE))
    listed = ", ".join(lacking[:4]) + (", ..." if len(lacking) > 4 else "")
    others = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
    note(
        f"{name}: protocol not stated in {record.folder}{others}: {listed}. Other runs of the row state it; "
        "it is assumed to be the same."
    )


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
