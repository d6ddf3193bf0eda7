"""Differences to a baseline, with a paired test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cocoamix.errors import UserError, nearest

from .names import is_zero_shot, simplify
from .rows import Row, not_comparable, show
from .stats import compare, mean
from .tables import PLAIN, Column, Line, Seeds, Table, Value, measure

Measure = Callable[[Row, str], dict[str, Seeds]]


def find_baseline(rows: Sequence[Row], name: str) -> Row | None:
    """Return the row that a person means by `name`, if it is in this table."""
    exact = [row for row in rows if row.label == name]
    loose = [row for row in rows if simplify(name) in (simplify(row.label), simplify(row.trainer))]
    return next(iter(exact or loose), None)


def no_baseline(name: str, labels: Sequence[str]) -> UserError:
    """Return the error for a baseline that no table has."""
    listed = ", ".join(dict.fromkeys(labels)) or "none"
    return UserError(f"--baseline {name}: no method has that name.{nearest(name, labels)} Methods: {listed}.")


def difference_table(
    rows: Sequence[Row], baseline: Row, datasets: Sequence[str], key: str, notes: list[str]
) -> Table | None:
    """Return for each other method how much higher its base, new and H are, and p of a paired sign-flip test.

    Several datasets are paired by dataset (means over shared seeds), because seeds of one dataset are not
    independent witnesses; a single dataset is paired by seed.
    """
    lines = []
    for row in rows:
        if row is baseline:
            continue
        refused = _refusals(row, baseline, datasets, notes)
        values = []
        pairs = 0
        unit = "seeds"
        for metric in ("base", "new", "H"):
            by_dataset = [
                _paired(measure(row, dataset)[metric], measure(baseline, dataset)[metric], row, baseline)
                for dataset in datasets
                if dataset not in refused
            ]
            by_dataset = [differences for differences in by_dataset if differences]
            unit = "datasets" if len(by_dataset) > 1 else "seeds"
            flat = (
                [mean(differences) for differences in by_dataset] if unit == "datasets" else next(iter(by_dataset), [])
            )
            if not flat:
                text = "not comparable" if refused else ""
                values += [Value(text=text), Value()]
                continue
            result = compare(flat)
            pairs = max(pairs, result.pairs)
            values += [Value(result.difference, None, result.pairs), Value(result.p, None, result.pairs)]
        values.append(Value(text=f"{pairs} {unit if pairs != 1 else unit[:-1]}") if pairs else Value())
        lines.append(Line(row.label, values))
    if not lines:
        return None
    columns = []
    for metric in ("base", "new", "H"):
        columns += [Column(f"d_{metric}", f"Δ {metric}", PLAIN, signed=True)]
        columns += [Column(f"p_{metric}", "p", PLAIN, decimals=3)]
    columns.append(Column("pairs", "pairs", PLAIN))
    caption = (
        "p: two-sided sign-flip permutation test on the paired differences. "
        "With n pairs it cannot be below 2/2^n: 0.250 for 3, 0.001 for 11."
    )
    return Table(key, f"Difference to {baseline.label}", columns, lines, caption=caption)


def _paired(seeds: Seeds, reference: Seeds, row: Row, baseline: Row) -> list[float]:
    """Return the differences of shared seeds. What is not trained has the same value for every seed."""
    if len(reference) == 1 and is_zero_shot(baseline.trainer):
        (constant,) = reference.values()
        return [value - constant for value in seeds.values()]
    if len(seeds) == 1 and is_zero_shot(row.trainer):
        (constant,) = seeds.values()
        return [constant - value for value in reference.values()]
    return [seeds[seed] - reference[seed] for seed in seeds if seed in reference]


def _refusals(row: Row, baseline: Row, datasets: Sequence[str], notes: list[str]) -> set[str]:
    refused: set[str] = set()
    for dataset in datasets:
        for subset in ("base", "new"):
            one = next(iter(row.by_seed(dataset, subset).values()), None)
            two = next(iter(baseline.by_seed(dataset, subset).values()), None)
            differing = not_comparable(one, two) if one and two else []
            if differing and dataset not in refused:
                refused.add(dataset)
                key, value, other = differing[0]
                notes.append(
                    f"{row.label} and {baseline.label} are not compared on {dataset}: "
                    f"{key} is {show(value)} and {show(other)}."
                )
    return refused
