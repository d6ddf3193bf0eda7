"""Group runs into rows of a table: runs of one method whose protocol and settings agree.

Runs that differ in more than the seed are never averaged. They become separate rows, named after what differs.
"""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cocoamix.config import roles
from cocoamix.report.names import is_zero_shot, method_name
from cocoamix.report.readers.runs import Inventory, Problem, Run
from cocoamix.report.readers.zero_shot import DECISIVE

from .facts import COMPARABLE, Scope, known, meaning

_PARTITION = "partition"
_SAME = 0.06  # points by which equal accuracies may differ, because logs have one decimal

Cell = tuple[str, str]  # dataset, subset
Identity = tuple[str, str, str]  # method, configuration, variant


@dataclass
class Row:
    """The runs of one method in one table."""

    label: str
    trainer: str
    runs: list[Run]
    cells: dict[Cell, dict[int | None, Run]] = field(default_factory=dict)  # by seed

    def by_seed(self, dataset: str, subset: str) -> dict[int | None, Run]:
        """Return the runs of a cell by seed."""
        return self.cells.get((dataset, subset), {})

    @property
    def datasets(self) -> list[str]:
        """The datasets of the runs."""
        return list(dict.fromkeys(run.dataset for run in self.runs))


def make_rows(runs: Sequence[Run], names: Sequence[tuple[str, str]], inventory: Inventory) -> list[Row]:
    """Group the runs of one table into rows.

    Args:
        runs: The runs.
        names: (pattern, label) pairs; a pattern is matched against Trainer/config and Trainer/config/variant.
        inventory: Receives notes on which runs were not averaged, and why.
    """
    groups: dict[Identity, list[Run]] = defaultdict(list)
    for run in runs:
        groups[_identity(run, names)].append(run)
    groups = _join_zero_shot(groups)
    rows = []
    for identity, label in _labels(groups).items():
        for suffix, members in _split(label, groups[identity], inventory):
            text = f"{label} [{suffix}]" if suffix else label
            _note_unstated(text, members, inventory)
            rows.append(_fill(text, members, inventory))
    return rows


def _identity(run: Run, names: Sequence[tuple[str, str]]) -> Identity:
    """Return what identifies the method of a run: the user's label for it, else method, configuration and variant."""
    full = "/".join(part for part in (run.trainer, run.config, run.variant) if part)
    for pattern, label in names:
        if any(fnmatch.fnmatchcase(text, pattern) for text in (full, f"{run.trainer}/{run.config}", run.trainer)):
            return (label, "", "")
    return (run.title or method_name(run.trainer), run.config, run.variant)


def _join_zero_shot(groups: Mapping[Identity, list[Run]]) -> dict[Identity, list[Run]]:
    """Join groups of zero-shot runs that differ only in settings of training, which do not matter."""
    joined: dict[Identity, list[Run]] = {}
    for identity, runs in groups.items():
        home = next((one for one in joined if one[0] == identity[0] and _same_zero_shot(joined[one] + runs)), identity)
        joined.setdefault(home, []).extend(runs)
    return joined


def _same_zero_shot(runs: Sequence[Run]) -> bool:
    """Return whether runs are zero-shot, state everything that their results depend on, and agree on all of it."""
    if not all(is_zero_shot(run.trainer) and all(key in run.protocol for key in DECISIVE) for run in runs):
        return False
    cells: dict[Hashable, list[Run]] = defaultdict(list)
    for run in runs:
        cells[(partition_of(run), *_cell(run))].append(run)
    differing = _differing([list(runs)], lambda run: {**_facts(run, Scope.ROW), **_of_model(run), _PARTITION: None})
    differing += _differing(cells.values(), lambda run: {**_facts(run, Scope.CELL), **run.settings})
    return not differing and not _clash(runs)


def _labels(groups: Iterable[Identity]) -> dict[Identity, str]:
    """Give each group a short unique name: the method, with its configuration if there are several."""
    by_method: dict[str, list[Identity]] = defaultdict(list)
    for identity in groups:
        by_method[identity[0]].append(identity)
    labels = {}
    for method, identities in by_method.items():
        several = [len({identity[part] for identity in identities}) > 1 for part in (1, 2)]
        for identity in identities:
            details = [identity[part] for part in (1, 2) if several[part - 1] and identity[part]]
            labels[identity] = f"{method} ({', '.join(details)})" if details else method
    return labels


# ---------------------------------------------------------------------------------------- splitting


def _split(label: str, runs: list[Run], inventory: Inventory) -> list[tuple[str, list[Run]]]:
    """Divide the runs of a method into rows, so that the runs of a cell differ only in the seed.

    Returns:
        Pairs of a suffix for the label, which names what differs, and the runs.
    """
    result = []
    for halves, whole in _split_by_partition(label, runs, inventory):
        for suffix, members in _split_by_facts(label, whole, inventory):
            for extra, clashing in _split_by_folder(members):
                result.append((", ".join(text for text in (halves, suffix, extra) if text), clashing))
    return result


def _split_by_partition(label: str, runs: list[Run], inventory: Inventory) -> list[tuple[str, list[Run]]]:
    """Divide runs by the partition of the classes, because each partition has other classes."""
    divided: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        divided[partition_of(run)].append(run)
    if len(divided) == 1:
        return [("", runs)]
    _note_differences(label, [runs], [_PARTITION], inventory)
    return [(f"{_PARTITION}={name}", members) for name, members in divided.items()]


def partition_of(run: Run) -> str:
    """Return the partition of the classes into base and new."""
    return str(_fact(run, _PARTITION))


def _split_by_facts(label: str, runs: list[Run], inventory: Inventory) -> list[tuple[str, list[Run]]]:
    cells = _cells(runs)
    # Which runs must agree, and on what.
    requirements: list[tuple[list[list[Run]], Callable[[Run], dict[str, Any]]]] = [
        ([runs], lambda run: _facts(run, Scope.ROW)),
        (list(cells.values()), lambda run: {**_facts(run, Scope.CELL), **run.settings}),
        (_models(runs), _training),
    ]
    keys = list(dict.fromkeys(key for groups, facts in requirements for key in _differing(groups, facts)))
    if _hidden_difference(cells.values(), keys):
        keys.append("fingerprint")
    if not keys:
        return [("", runs)]
    _note_differences(label, [group for groups, _ in requirements for group in groups], keys, inventory)
    divided: dict[tuple[Hashable, ...], list[Run]] = defaultdict(list)
    for run in runs:
        values: list[Hashable] = []
        for key in keys:
            value = _fact(run, key)
            if meaning(key).scope is Scope.CELL:
                # Hashes of different datasets cannot be compared: use the number of the hash within its cell.
                value = 1 + _distinct(_fact(other, key) for other in cells[_cell(run)]).index(value)
            values.append(value)
        divided[tuple(values)].append(run)
    return list(zip(_fact_names(keys, list(divided)), divided.values(), strict=True))


def _models(runs: Iterable[Run]) -> list[list[Run]]:
    """Group the runs whose results are combined as if of one model: base and new, or source and targets."""
    models: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if is_zero_shot(run.trainer):
            continue
        if run.task == "base2new" and run.subset in ("base", "new"):
            models[run.dataset].append(run)
        elif run.task == "transfer":
            models["transfer"].append(run)
    return list(models.values())


def _training(run: Run) -> dict[str, Any]:
    """Return what a run states about its model. All runs of one model must agree on it."""
    stated = _of_model(run)
    return stated if run.epoch is None else {**stated, "epoch": run.epoch}


def _of_model(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.settings.items() if roles.compared_in_model(key)}


def _hidden_difference(cells: Iterable[list[Run]], keys: Sequence[str]) -> bool:
    """Return whether runs of a cell have different fingerprints, although they agree on all keys."""
    for cell in cells:
        first: dict[tuple[Hashable, ...], str] = {}
        for run in cell:
            stated = tuple(_fact(run, key) for key in (*keys, "dataset", "subset", "shots"))
            found = _fingerprint(run)
            if found and first.setdefault(stated, found) != found:
                return True
    return False


def _fingerprint(run: Run) -> str:
    """Return the fingerprint of a run's protocol. For a zero-shot run, facts that only training reads are ignored."""
    if not run.fingerprint or not is_zero_shot(run.trainer):
        return run.fingerprint
    return hashlib.sha256(repr(sorted(run.protocol.items())).encode(errors="replace")).hexdigest()[:16]


def _fact(run: Run, key: str) -> Any:
    if key == "fingerprint":
        return _fingerprint(run) or None
    if key == "epoch":
        return run.epoch
    return run.settings.get(key, known(run.protocol).get(key))


def _fact_names(keys: list[str], groups: list[tuple[Hashable, ...]]) -> list[str]:
    """Name groups by the fewest differing facts that tell them apart."""
    kept = list(range(len(keys)))
    for place in reversed(range(len(keys))):
        fewer = [one for one in kept if one != place]
        if len({tuple(values[one] for one in fewer) for values in groups}) == len(groups):
            kept = fewer
    names = [", ".join(f"{_short(keys[place])}={_brief(show(values[place]))}" for place in kept) for values in groups]
    if len(kept) > 3 or len(set(names)) < len(names):
        return [f"kind {number}" for number in range(1, len(groups) + 1)]
    return names


def _brief(text: str, length: int = 24) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."


def _facts(run: Run, scope: Scope) -> dict[str, Any]:
    return {
        key: value
        for key, value in known(run.protocol).items()
        if meaning(key).scope is scope and not (key == "precision" and value == "auto")
    }


def _differing(groups: Iterable[list[Run]], facts: Callable[[Run], dict[str, Any]]) -> list[str]:
    """Return the keys on which runs of the same group disagree."""
    found: dict[str, None] = {}
    for group in groups:
        if len(group) < 2:
            continue
        first: dict[str, Any] = {}
        for run in group:
            for key, value in facts(run).items():
                if first.setdefault(key, value) != value:
                    found[key] = None
    return list(found)


def _note_differences(label: str, groups: Iterable[list[Run]], keys: Sequence[str], inventory: Inventory) -> None:
    noted: set[str] = set()
    for group in groups:
        for key in keys:
            first: dict[Any, Run] = {}
            for run in group:
                if _fact(run, key) is not None:
                    first.setdefault(_fact(run, key), run)
            if len(first) < 2 or key in noted:
                continue
            noted.add(key)
            (one, run_one), (two, run_two) = list(first.items())[:2]
            tail = f" ({len(first)} values in all)" if len(first) > 2 else ""
            if key == "fingerprint":
                alone = sorted(set(run_one.protocol) ^ set(run_two.protocol))
                tail = (
                    f" (only one of them states {', '.join(alone)})"
                    if alone
                    else " (everything that they state agrees)"
                )
            inventory.notes.append(
                f"{label}: {key} is {show(one)} in {run_one.folder} and {show(two)} in {run_two.folder}{tail}. "
                "Runs that differ in it are not averaged; each kind has its own row."
            )


def _note_unstated(label: str, runs: Sequence[Run], inventory: Inventory) -> None:
    """Note which facts only some runs of a row state. The runs are averaged nevertheless."""
    found = dict.fromkeys(key for run in runs for scope in (Scope.ROW, Scope.CELL) for key in _facts(run, scope))
    stated = [key for key in found if not meaning(key).where_true]
    silent = [(run, [key for key in stated if key not in known(run.protocol)]) for run in runs]
    silent = [(run, lacking) for run, lacking in silent if lacking]
    if not silent:
        return
    run, lacking = silent[0]
    lacking.sort(key=lambda key: COMPARABLE.index(key) if key in COMPARABLE else len(COMPARABLE))
    listed = ", ".join(lacking[:4]) + (", ..." if len(lacking) > 4 else "")
    others = f" and {len(silent) - 1} more" if len(silent) > 1 else ""
    inventory.notes.append(
        f"{label}: protocol not stated in {run.folder}{others}: {listed}. Other runs of the row state it; "
        "it is assumed to be the same."
    )


def _split_by_folder(runs: list[Run]) -> list[tuple[str, list[Run]]]:
    """Divide runs with the same cell and seed by the folder given to the report, or by the folders above them."""
    if not _clash(runs):
        return [("", runs)]
    keys: list[Callable[[Run], Hashable]] = [lambda run: run.origin, lambda run: run.rest]
    for key in keys:
        groups: dict[Hashable, list[Run]] = defaultdict(list)
        for run in runs:
            groups[key(run)].append(run)
        if len(groups) > 1 and not any(_clash(group) for group in groups.values()):
            return list(zip(_folder_names(list(groups.values())), groups.values(), strict=True))
    return [("", runs)]


def _folder_names(groups: list[list[Run]]) -> list[str]:
    """Return the part of the folders above the runs that distinguishes the groups."""
    tails = [list(group[0].rest) for group in groups]
    while tails[0] and all(tail[:1] == tails[0][:1] for tail in tails):
        tails = [tail[1:] for tail in tails]
    while tails[0] and all(tail[-1:] == tails[0][-1:] for tail in tails):
        tails = [tail[:-1] for tail in tails]
    names = ["/".join(tail) or f"folder {number}" for number, tail in enumerate(tails, start=1)]
    return names if len(set(names)) == len(names) else [f"folder {number}" for number in range(1, len(names) + 1)]


def _clash(runs: Iterable[Run]) -> bool:
    """Return whether two runs have the same cell and seed. Equal zero-shot results may occur several times."""
    found: dict[Hashable, Run] = {}
    for run in runs:
        other = found.setdefault((partition_of(run), *_cell(run), run.shots, run.seed), run)
        if other is not run and not (is_zero_shot(run.trainer) and _same_result(run, other)):
            return True
    return False


def _same_result(one: Run, two: Run) -> bool:
    return one.sessions == two.sessions and abs(one.accuracy - two.accuracy) <= _SAME


# ---------------------------------------------------------------------------------------- filling


def _fill(label: str, runs: list[Run], inventory: Inventory) -> Row:
    """Return the row of some runs. Of several runs with the same cell and seed, the newest counts."""
    row = Row(label, runs[0].trainer, [])
    # Sorted, so that the result does not depend on the order in which folders are read.
    for run in sorted(runs, key=lambda run: (run.written, run.folder)):
        seeds = row.cells.setdefault(_cell(run), {})
        if run.seed in seeds:
            older = seeds[run.seed]
            # MaPLe's scripts evaluate base classes again, in test_base: the same result twice is no problem.
            if not _same_result(run, older):
                reason = f"another run, {run.folder}, has the same method, dataset and seed and is newer, so it counts"
                inventory.problems.append(Problem(older.folder, reason, "duplicate"))
            row.runs.remove(older)
        seeds[run.seed] = run
        row.runs.append(run)
    row.runs.sort(key=lambda run: (run.origin, run.folder))
    for cell, seeds in row.cells.items():
        row.cells[cell] = dict(sorted(seeds.items(), key=lambda item: (item[0] is None, item[0] or 0)))
    return row


def _cell(run: Run) -> Cell:
    return (run.dataset, run.subset)


def _cells(runs: Iterable[Run]) -> dict[Cell, list[Run]]:
    cells: dict[Cell, list[Run]] = defaultdict(list)
    for run in runs:
        cells[_cell(run)].append(run)
    return cells


def not_comparable(one: Run, two: Run) -> list[tuple[str, Any, Any]]:
    """Return the facts that prevent a comparison of two runs of a cell, as (key, value, value)."""
    first, second = known(one.protocol), known(two.protocol)
    return [
        (key, first[key], second[key])
        for key in COMPARABLE
        if key in first and key in second and first[key] != second[key]
    ]


# ---------------------------------------------------------------------------------------- transfer


def find_sources(runs: Sequence[Run]) -> list[Run]:
    """Assign the training run of each transferred model to the transfer, as its source.

    In CoOp's layout, the model that is transferred from ImageNet looks like a few-shot run on ImageNet.
    """
    keys = {_model(run) for run in runs if run.task == "transfer"}
    candidates: dict[tuple[str, str, str, int | None], set[str]] = defaultdict(set)
    for run in runs:
        if run.task == "few-shot" and _model(run) in keys:
            candidates[_model(run)].add(run.dataset)
    stated = {_model(run): run.source for run in runs if run.task == "transfer" and run.source}
    sources = dict(stated)
    for key in keys - set(stated):
        datasets = candidates[key]
        if "ImageNet" in datasets or len(datasets) == 1:
            sources[key] = "ImageNet" if "ImageNet" in datasets else next(iter(datasets))
    every = set(sources.values())
    only = next(iter(every)) if len(every) == 1 else ""
    result = []
    for run in runs:
        if run.task == "transfer":
            run = replace(run, source=sources.get(_model(run), only))
        elif run.task == "few-shot" and sources.get(_model(run)) == run.dataset:
            run = replace(run, task="transfer", source=run.dataset)
        result.append(run)
    return result


def _model(run: Run) -> tuple[str, str, str, int | None]:
    return (run.trainer, run.config, run.variant, run.shots)


# ---------------------------------------------------------------------------------------- words


def show(value: Any) -> str:
    """Return a value of a configuration as a user would write it."""
    if isinstance(value, float) and abs(value) < 1e15 and value == int(value):
        return str(int(value))
    if isinstance(value, tuple):
        return "(" + ", ".join(show(item) for item in value) + ")"
    if value is None:
        return "not stated"
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{32,}", value):
        return value[:12]  # enough of a hash
    return str(value) if str(value) else "empty"


def _short(key: str) -> str:
    return key.rsplit(".", 1)[-1] if key.isupper() else key


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
