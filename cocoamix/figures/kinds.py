"""Gather finished runs of CoCoA-Mix that differ only in the settings that a figure varies."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cocoamix.errors import UserError, printable, some_of

if TYPE_CHECKING:
    from pathlib import Path

    from cocoamix.report.readers.runs import Inventory, Run

SECTION = "TRAINER.COCOAMIX."
_TRAINER = "cocoamix"
_LONGEST = 160  # characters of the list of folders that are left out

Point = TypeVar("Point")
Cell = tuple[str, str]  # dataset, subset


@dataclass
class Gathered(Generic[Point]):
    """Runs that differ only in the settings that a figure varies.

    Attributes:
        cells: The runs by point (the varied settings), then by dataset and subset, then by seed.
    """

    cells: dict[Point, dict[Cell, dict[int | None, Run]]] = field(default_factory=dict)

    def datasets(self, points: Iterable[Point], subset: str) -> list[str]:
        """Return the datasets on which all of the points were evaluated, in the order of the papers' tables."""
        from cocoamix.report.names import sort_datasets

        found = [{dataset for dataset, part in self.cells[point] if part == subset} for point in points]
        return sort_datasets(set.intersection(*found)) if found else []

    def seeds(self, points: Iterable[Point], datasets: Iterable[str], subset: str) -> list[int | None]:
        """Return the seeds that all of the points have on all of the datasets."""
        chosen = list(datasets)
        found = [set(self.cells[point].get((one, subset), ())) for point in points for one in chosen]
        shared = set.intersection(*found) if found else set()
        return sorted(shared, key=lambda seed: (seed is None, seed or 0))


def find_inventory(folders: Sequence[Path]) -> Inventory:
    """Return the runs below some folders; print unusable ones to stderr."""
    from cocoamix.report.readers.runs import find_runs

    inventory = find_runs(folders)
    for problem in inventory.problems:
        print(printable(f"Left out: {problem.folder}: {problem.reason}."), file=sys.stderr)
    return inventory


def own_runs(inventory: Inventory, ensemble: str) -> list[Run]:
    """Return the base-to-new runs of CoCoA-Mix with one kind of ensemble: coa, uniform or none."""
    from cocoamix.registry import plain_name
    from cocoamix.report.names import simplify

    return [
        run
        for run in inventory.runs
        if simplify(plain_name(run.trainer)) == _TRAINER
        and run.task == "base2new"
        and run.settings.get(f"{SECTION}ENSEMBLE", "coa") == ensemble
    ]


def gather(
    runs: Iterable[Run], point: Callable[[Run], Point | None], varied: Sequence[str], what: str
) -> Gathered[Point]:
    """Return the runs of the kind with the most points; print the others to stderr.

    Args:
        runs: Runs of any kind.
        point: Returns the point that a run belongs to, or None.
        varied: Keys in which the runs of a figure may differ.
        what: What the figure needs, for the error message.
    """
    kinds: dict[tuple[tuple[str, Any], ...], list[tuple[Point, Run]]] = defaultdict(list)
    for run in runs:
        at = point(run)
        if at is not None:
            kinds[_kind(run, varied)].append((at, run))
    if not kinds:
        raise UserError(f"There is no run to draw: {what}.")
    ranked = sorted(kinds, key=lambda kind: len({at for at, _ in kinds[kind]}), reverse=True)
    first, others = ranked[0], ranked[1:]
    if others and len({at for at, _ in kinds[others[0]]}) == len({at for at, _ in kinds[first]}):
        why = _difference(first, others[0], kinds[first][0][1], kinds[others[0]][0][1])
        raise UserError(f"The runs are of several kinds: {why}. Give the folders of one kind.")
    for other in others:
        names = [printable(run.folder) for _, run in kinds[other]]
        why = _difference(other, first, kinds[other][0][1], kinds[first][0][1])
        print(f"Left out: {some_of(names, _LONGEST)}: {why}.", file=sys.stderr)
    found: Gathered[Point] = Gathered()
    # Of runs that agree in everything, the newest counts, whatever the order in which folders are read.
    for at, run in sorted(kinds[first], key=lambda pair: (pair[1].written, pair[1].folder)):
        found.cells.setdefault(at, {}).setdefault((run.dataset, run.subset), {})[run.seed] = run
    _refuse_other_images([run for _, run in kinds[first]])
    return found


def _kind(run: Run, varied: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """Return the settings on which runs must agree. Images and their labels are compared separately, by dataset."""
    facts = {key: value for key, value in run.settings.items() if key not in varied and not key.startswith("DATASET.")}
    facts |= {"backbone": run.protocol.get("backbone"), "shots": run.shots}
    return tuple(sorted(facts.items(), key=lambda item: item[0]))


def _difference(one: Sequence[tuple[str, Any]], two: Sequence[tuple[str, Any]], run: Run, other: Run) -> str:
    """Describe the first difference between two kinds, with a run of each as an example."""
    from cocoamix.report.model.rows import show

    facts, others = dict(one), dict(two)
    key = next(key for key in [*facts, *others] if facts.get(key) != others.get(key))
    return printable(f"{key} is {show(facts.get(key))} in {run.folder} and {show(others.get(key))} in {other.folder}")


def _refuse_other_images(runs: Sequence[Run]) -> None:
    """Refuse a comparison of accuracies on different images or of different models."""
    from cocoamix.report.model.rows import not_comparable, show

    first: dict[Cell, Run] = {}
    for run in runs:
        other = first.setdefault((run.dataset, run.subset), run)
        for key, one, two in not_comparable(other, run)[:1]:
            raise UserError(
                f"{other.folder} and {run.folder} cannot be compared: {key} is {show(one)} in the first and "
                f"{show(two)} in the second. Give the folders of one protocol."
            )


def seeds_in_words(seeds: Sequence[int | None]) -> str:
    """Describe the seeds of a mean."""
    shown = [str(seed) for seed in seeds if seed is not None]
    if not shown:
        return "one run each"
    return f"seed {shown[0]}" if len(shown) == 1 else f"mean of seeds {', '.join(shown)}"


def number(settings: Mapping[str, Any], key: str, default: float) -> float:
    """Return a numeric setting of the trainer's section."""
    value = settings.get(SECTION + key, default)
    return float(value) if isinstance(value, (int, float)) else default
