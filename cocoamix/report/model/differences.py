"""Differences from a baseline, with a paired test, for every task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cocoamix.errors import UserError, nearest
from cocoamix.report.names import is_zero_shot, simplify

from .marks import default_reference, mark_differences
from .rows import Cell, Row, not_comparable, show
from .stats import compare, harmonic, mean
from .tables import HIGH, LOW, PLAIN, Column, Line, Section, Seeds, Table, Value, measure


@dataclass(frozen=True)
class Unit:
    """A dataset on which a measure is taken.

    The test pairs several units by dataset. A single unit is paired by seed.
    """

    name: str
    values: Callable[[Row], Seeds]
    cells: Callable[[Row], list[Cell]]  # cells whose protocols must agree


@dataclass(frozen=True)
class Measure:
    """A column of differences."""

    key: str
    title: str
    units: tuple[Unit, ...]
    better: str = HIGH  # whether higher or lower differences are better


# ---------------------------------------------------------------------------------------- the baseline


class Baseline:
    """The method with which others are compared. Each table may or may not have it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found = False
        self._labels: dict[str, None] = {}  # of all rows, in their order

    def add_to(
        self, rows: Sequence[Row], measures: Sequence[Measure], key: str, notes: list[str], what: str = ""
    ) -> Table | None:
        """Return a table of differences from the baseline; None if the baseline is not among the rows."""
        self._labels.update(dict.fromkeys(row.label for row in rows))
        found = find_baselines(rows, self.name) if self.name else []
        if not found:
            return None
        self.found = True
        if len(found) > 1:
            listed = ", ".join(row.label for row in found[1:])
            notes.append(
                f"--baseline {self.name} is {found[0].label} here; it could also be {listed}. Give the full name."
            )
        return _difference_table(rows, found[0], measures, key, notes, what)

    def mark(self, section: Section, rows: Sequence[Row], tables: Sequence[Table] | None = None) -> None:
        """Mark cells that are better or worse than the baseline, or than zero-shot CLIP if there is no baseline."""
        reference = next(iter(find_baselines(rows, self.name)), None) if self.name else default_reference(rows)
        if reference and mark_differences(section.tables if tables is None else tables, rows, reference):
            section.reference = reference.label

    def check(self) -> None:
        """Raise UserError if no table has the baseline."""
        if self.name and not self.found:
            labels = list(self._labels)
            raise UserError(
                f"--baseline {self.name}: no method has that name.{nearest(self.name, labels)} "
                f"Methods: {', '.join(labels) or 'none'}."
            )


def find_baselines(rows: Sequence[Row], name: str) -> list[Row]:
    """Return the rows that `name` may mean: those with this label, else those with a similar label or trainer."""
    exact = [row for row in rows if row.label == name]
    return exact or [row for row in rows if simplify(name) in (simplify(row.label), simplify(row.trainer))]


# ---------------------------------------------------------------------------------------- measures of the tasks


def base_to_new(datasets: Sequence[str]) -> list[Measure]:
    """Return base, new and H on each dataset."""

    def unit(dataset: str, key: str) -> Unit:
        cells = [(dataset, subset) for subset in ("base", "new")]
        return Unit(dataset, lambda row: measure(row, dataset)[key], lambda row: cells)

    return [Measure(key, key, tuple(unit(dataset, key) for dataset in datasets)) for key in ("base", "new", "H")]


def transfer(source: str, targets: Sequence[str]) -> list[Measure]:
    """Return the accuracy on the source, on each target, and their H."""

    def both(target: str, row: Row) -> Seeds:
        trained, reached = _accuracies(row, source, "all"), _accuracies(row, target, "all")
        return {seed: harmonic(trained[seed], reached[seed]) for seed in reached if seed in trained}

    return [
        Measure("source", "source", (_accuracy(source, source, "all"),)),
        Measure("target", "target", tuple(_accuracy(target, target, "all") for target in targets)),
        Measure(
            "H",
            "H",
            tuple(
                Unit(target, partial(both, target), partial(_same, [(source, "all"), (target, "all")]))
                for target in targets
            ),
        ),
    ]


def sessions(dataset: str, count: int) -> list[Measure]:
    """Return the accuracy after the last session, the mean over sessions, and PD."""

    def unit(summary: Callable[[Sequence[float]], float]) -> Unit:
        def values(row: Row) -> Seeds:
            runs = row.by_seed(dataset, "all").items()
            return {seed: summary(run.sessions) for seed, run in runs if len(run.sessions) == count}

        return Unit(dataset, values, partial(_same, [(dataset, "all")]))

    return [
        Measure("last", "last session", (unit(lambda values: values[-1]),)),
        Measure("mean", "mean", (unit(mean),)),
        Measure("PD", "PD", (unit(lambda values: values[0] - values[-1]),), LOW),
    ]


def few_shot(datasets: Sequence[str], kinds: Sequence[str]) -> list[Measure]:
    """Return the accuracy for each number of shots; a zero-shot result holds for all of them."""
    trained = [kind for kind in kinds if kind != "zero-shot"] or list(kinds)

    def kind_of(row: Row, kind: str) -> str:
        return "zero-shot" if is_zero_shot(row.trainer) else kind

    def unit(dataset: str, kind: str) -> Unit:
        return Unit(
            dataset,
            lambda row: _accuracies(row, dataset, kind_of(row, kind)),
            lambda row: [(dataset, kind_of(row, kind))],
        )

    return [Measure(kind, kind, tuple(unit(dataset, kind) for dataset in datasets)) for kind in trained]


def _accuracies(row: Row, dataset: str, subset: str) -> Seeds:
    return {seed: run.accuracy for seed, run in row.by_seed(dataset, subset).items()}


def _accuracy(name: str, dataset: str, subset: str) -> Unit:
    return Unit(name, lambda row: _accuracies(row, dataset, subset), partial(_same, [(dataset, subset)]))


def _same(cells: list[Cell], row: Row) -> list[Cell]:
    """Return the cells, which are the same for every row."""
    return cells


# ---------------------------------------------------------------------------------------- the table


def _difference_table(
    rows: Sequence[Row], baseline: Row, measures: Sequence[Measure], key: str, notes: list[str], what: str
) -> Table | None:
    """Return the difference of each other method from the baseline, and p of a paired sign-flip test.

    Several datasets are paired by dataset (means over shared seeds), because seeds of one dataset are not
    independent; a single dataset is paired by seed.
    """
    others = [row for row in rows if row is not baseline]
    if not others:
        notes.append(f"There is no other method here to compare with {baseline.label}.")
        return None
    lines = [_line(row, baseline, measures, notes) for row in others]
    columns = []
    for one in measures:
        columns += [Column(f"d_{one.key}", f"Δ {one.title}", one.better, signed=True)]
        columns += [Column(f"p_{one.key}", "p", PLAIN, decimals=3)]
    columns.append(Column("pairs", "pairs", PLAIN))
    caption = (
        "p: two-sided sign-flip permutation test on the paired differences. "
        "With n pairs it cannot be below 2/2^n: 0.250 for 3, 0.001 for 11."
    )
    title = f"Difference from {baseline.label}" + (f", {what}" if what else "")
    return Table(key, title, columns, lines, caption=caption)


def _line(row: Row, baseline: Row, measures: Sequence[Measure], notes: list[str]) -> Line:
    refused = _refusals(row, baseline, measures, notes)
    values = []
    counted: dict[str, list[str]] = {}  # titles of measures by their number of pairs, such as "3 seeds"
    for one in measures:
        units = [unit for unit in one.units if unit.name not in refused[one.key]]
        found = [_paired(unit.values(row), unit.values(baseline), row, baseline) for unit in units]
        found = [differences for differences in found if differences]
        if not found:
            values += [Value(text="not comparable" if refused[one.key] else ""), Value()]
            continue
        word = "dataset" if len(found) > 1 else "seed"
        result = compare([mean(differences) for differences in found] if len(found) > 1 else found[0])
        counted.setdefault(f"{result.pairs} {word}{'s' * (result.pairs != 1)}", []).append(one.title)
        values += [Value(result.difference, None, result.pairs), Value(result.p, None, result.pairs)]
    if len(counted) == 1:
        values.append(Value(text=next(iter(counted))))
    else:
        values.append(Value(text="; ".join(f"{text} ({', '.join(titles)})" for text, titles in counted.items())))
    return Line(row.label, values)


def _paired(seeds: Seeds, reference: Seeds, row: Row, baseline: Row) -> list[float]:
    """Return the differences of shared seeds. A zero-shot method has the same value for every seed."""
    if len(reference) == 1 and is_zero_shot(baseline.trainer):
        (constant,) = reference.values()
        return [value - constant for value in seeds.values()]
    if len(seeds) == 1 and is_zero_shot(row.trainer):
        (constant,) = seeds.values()
        return [constant - value for value in reference.values()]
    return [seeds[seed] - reference[seed] for seed in seeds if seed in reference]


def _refusals(row: Row, baseline: Row, measures: Sequence[Measure], notes: list[str]) -> dict[str, set[str]]:
    """Return, for each measure, the datasets on which two rows cannot be compared. Note the reason once for each."""
    refused: dict[str, set[str]] = {}
    noted: set[str] = set()
    for one in measures:
        refused[one.key] = set()
        for unit in one.units:
            for mine, theirs in zip(unit.cells(row), unit.cells(baseline), strict=True):
                first = next(iter(row.by_seed(*mine).values()), None)
                second = next(iter(baseline.by_seed(*theirs).values()), None)
                differing = not_comparable(first, second) if first and second else []
                if not differing:
                    continue
                refused[one.key].add(unit.name)
                if mine[0] not in noted:
                    noted.add(mine[0])
                    key, value, other = differing[0]
                    notes.append(
                        f"{row.label} and {baseline.label} are not compared on {mine[0]}: "
                        f"{key} is {show(value)} and {show(other)}."
                    )
    return refused
