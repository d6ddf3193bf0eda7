"""What is reported of a class-incremental run, from the hits of each session's evaluation.

Row s is the evaluation after session s on all classes seen so far; its column j is the accuracy on the test images of
the classes of session j, among all classes seen. All in percent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Row:
    """One evaluation. hits, images: of the test images of each session so far."""

    classes: int
    hits: tuple[int, ...]
    images: tuple[int, ...]
    confidence: Mapping[str, float] = field(default_factory=dict)  # measures of it, by name

    @property
    def accuracy(self) -> float:
        """On all classes seen so far."""
        return _share(sum(self.hits), sum(self.images))

    @property
    def blocks(self) -> list[float]:
        """On the classes of each session: base first, then each novel session."""
        return [_share(hits, images) for hits, images in zip(self.hits, self.images, strict=True)]

    @property
    def novel(self) -> float | None:
        """On the classes of all sessions but the first, or None in the first."""
        return _share(sum(self.hits[1:]), sum(self.images[1:])) if len(self.hits) > 1 else None

    @property
    def harmonic_mean(self) -> float | None:
        """Of base and novel."""
        base, novel = self.blocks[0], self.novel
        if novel is None:
            return None
        return 2 * base * novel / (base + novel) if base + novel else 0.0


def _share(hits: int, images: int) -> float:
    return 100 * hits / images if images else 0.0


def forgetting(rows: Sequence[Row], at: int) -> list[float]:
    """Return for each session before `at` its best accuracy so far, before `at`, minus the one at `at`.

    Below 0 where a session's classes are recognised better than ever before.
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
    """Return everything as plain numbers, for JSON."""
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
    """Return the name of the classes of a session in the columns of a table."""
    return f"s{number}" if number else "base"


def head(count: int) -> list[str]:
    """Return the titles of the columns of `cells`."""
    return ["session", "classes", "all", *map(_block, range(count)), "novel", "H", "forgetting"]


def cells(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for each session: accuracy on all, base, each novel session, all novel; H; mean forgetting."""
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
    """Return a table's lines with its columns right-aligned."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
