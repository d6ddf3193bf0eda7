"""Cells of CSV files, which people open in a spreadsheet."""

from __future__ import annotations

import re

from cocoamix.errors import printable

# What a spreadsheet computes, or runs; and the same after apostrophes, so that a cell can be read back.
_FORMULA = re.compile(r"'*\s*[=+\-@]")


def text_cell(text: str) -> str:
    """Return a text that a spreadsheet shows as it is: one that it would take for a formula gets an apostrophe."""
    shown = printable(text)
    return f"'{shown}" if _FORMULA.match(shown) and not _is_number(shown) else shown


def cell_text(cell: str) -> str:
    """Return the text of a cell that `text_cell` made."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
