"""Mark cells as better or worse than those of a reference method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cocoamix.report.names import is_clip, is_zero_shot

from .rows import Row, not_comparable
from .tables import PLAIN, Line, Table, Value

ZERO_SHOT = "zero-shot"  # the column of methods without shots


def default_reference(rows: Sequence[Row]) -> Row | None:
    """Return the row against which others are marked if the user names no baseline: the only row of zero-shot CLIP."""
    for choose in (is_clip, is_zero_shot):
        found = [row for row in rows if choose(row.trainer)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def mark_differences(tables: Sequence[Table], rows: Sequence[Row], reference: Row) -> bool:
    """Store in each cell its difference from the reference's cell if they can be compared; return whether any can."""
    comparable = {row.label for row in rows if row is not reference and _comparable(row, reference)}
    marked = False
    for table in tables:
        found = next((line for line in table.lines if line.kind == "own" and line.label == reference.label), None)
        if found is None:
            continue
        bases = [_base(table, found, place) for place in range(len(table.columns))]
        for line in table.lines:
            if line.kind == "own" and line.label in comparable:
                line.values = [
                    _against(value, base) if column.better != PLAIN else value
                    for value, base, column in zip(line.values, bases, table.columns, strict=True)
                ]
                marked = marked or any(value.against is not None for value in line.values)
    return marked


def _base(table: Table, line: Line, place: int) -> Value:
    """Return the reference's cell of a column. A zero-shot result holds for any number of shots."""
    value = line.values[place]
    keys = [column.key for column in table.columns]
    if value.mean is None and ZERO_SHOT in keys and keys[place][0].isdigit():
        return line.values[keys.index(ZERO_SHOT)]
    return value


def _against(value: Value, base: Value) -> Value:
    if value.mean is None or base.mean is None:
        return value
    return replace(value, against=value.mean - base.mean)


def _comparable(row: Row, reference: Row) -> bool:
    for dataset in row.datasets:
        own = {subset: runs for (name, subset), runs in row.cells.items() if name == dataset and runs}
        others = {subset: runs for (name, subset), runs in reference.cells.items() if name == dataset and runs}
        # Numbers of shots share their test images; halves of the classes do not.
        pairs = [(subset, subset) for subset in own if subset in others] or [
            (one, two) for one in own for two in others if ZERO_SHOT in (one, two)
        ]
        for one, two in pairs:
            if not_comparable(next(iter(own[one].values())), next(iter(others[two].values()))):
                return False
    return True
