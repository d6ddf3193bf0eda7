"""Text cells of CSV files that are safe to open in a spreadsheet."""

from __future__ import annotations

import re

from cocoamix.errors import printable

# A formula, also one after apostrophes, so that `cell_text` can tell which apostrophe to remove.
_FORMULA = re.compile(r"'*\s*[=+\-@]")


def text_cell(text: str) -> str:
    """Return a cell that no spreadsheet evaluates: an apostrophe precedes what looks like a formula."""
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
