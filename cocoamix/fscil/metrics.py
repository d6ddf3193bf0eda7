"""Metrics of a class-incremental run, from the counts of correct predictions after each session.

Row s is the evaluation after session s on all classes seen so far. Its column j is the accuracy on the test images of
session j's classes in that label space. All values are percentages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """One evaluation: correct predictions (`hits`) and test images of each session so far."""

    classes: int
    hits: tuple[int, ...]
    images: tuple[int, ...]
    confidence: Mapping[str, float] = field(default_factory=dict)  # confidence metrics, by name

    @property
    def accuracy(self) -> float:
        """Accuracy on all classes seen so far."""
        return _share(sum(self.hits), sum(self.images))

    @property
    def blocks(self) -> list[float]:
        """Accuracy on the classes of each session: base first, then each novel session."""
        return [_share(hits, images) for hits, images in zip(self.hits, self.images, strict=True)]

    @property
    def novel(self) -> float | None:
        """Accuracy on the classes of all sessions but the first; None after the first session."""
        return _share(sum(self.hits[1:]), sum(self.images[1:])) if len(self.hits) > 1 else None

    @property
    def harmonic_mean(self) -> float | None:
        """Harmonic mean of base and novel accuracy."""
        base, novel = self.blocks[0], self.novel
        if novel is None:
            return None
        return 2 * base * novel / (base + novel) if base + novel else 0.0


def _share(hits: int, images: int) -> float:
    return 100 * hits / images if images else 0.0


def forgetting(rows: Sequence[Row], at: int) -> list[float]:
    """Return, for each session before `at`, its best earlier accuracy minus its accuracy at `at`.

    A negative value means that the session's classes are recognised better than ever before.
    """
    blocks = [row.blocks for row in rows]
    return [max(blocks[one][session] for one in range(session, at)) - blocks[at][session] for session in range(at)]


def mean_accuracy(rows: Sequence[Row]) -> float:
    """Return the mean of the accuracies after each session."""
    return sum(row.accuracy for row in rows) / len(rows)


def performance_drop(rows: Sequence[Row]) -> float:
    """Return PD, the accuracy after the first session minus that after the last."""
    return rows[0].accuracy - rows[-1].accuracy


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return all metrics as plain values, for JSON."""
    sessions = []
    for number, row in enumerate(rows):
        lost = forgetting(rows, number)
        sessions.append(
            {
                "session": number,
                "classes": row.classes,
                "images": sum(row.images),
                "accuracy": row.accuracy,
                "base": row.blocks[0],
                "novel_sessions": row.blocks[1:],
                "novel": row.novel,
                "harmonic_mean": row.harmonic_mean,
                "forgetting": lost,
                "mean_forgetting": sum(lost) / len(lost) if lost else None,
                **row.confidence,
            }
        )
    return {"sessions": sessions, "mean": mean_accuracy(rows), "pd": performance_drop(rows)}


def _block(number: int) -> str:
    """Return the column title of a session's classes."""
    return f"s{number}" if number else "base"


def head(count: int) -> list[str]:
    """Return the column titles of `cells`."""
    return ["session", "classes", "all", *map(_block, range(count)), "novel", "H", "forgetting"]


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return one row per session: accuracy on all, base, each novel session, all novel; H; mean forgetting."""
    lines = []
    for number, row in enumerate(rows):
        blocks = row.blocks + [None] * (len(rows) - 1 - number)
        lost = forgetting(rows, number)
        values = [row.accuracy, *blocks, row.novel, row.harmonic_mean, sum(lost) / len(lost) if lost else None]
        lines.append([str(number), str(row.classes), *("" if v is None else f"{v:.2f}" for v in values)])
    return lines


def text_table(rows: Sequence[Row]) -> str:
    """Return the table for a terminal, with mean, PD and the forgetting of each session below it."""
    lost = forgetting(rows, len(rows) - 1)
    lines = aligned([head(len(rows)), *cells(rows)])
    lines.append(f"mean {mean_accuracy(rows):.2f}, PD {performance_drop(rows):.2f} (first minus last)")
    if lost:
        shown = ", ".join(f"{_block(number)} {value:.2f}" for number, value in enumerate(lost))
        lines.append(f"forgetting after the last session: {shown}")
    return "\n".join(lines) + "\n"


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with right-aligned columns."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
