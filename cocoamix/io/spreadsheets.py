"""Cells of CSV files, which people open in a spreadsheet."""

from __future__ import annotations

from cocoamix.errors import printable

_BEGINNINGS = ("=", "+", "-", "@")  # of what a spreadsheet computes, or runs


def text_cell(text: str) -> str:
    """Return a text that a spreadsheet shows as it is: one that it would take for a formula gets an apostrophe."""
    shown = printable(text)
    return f"'{shown}" if shown.lstrip().startswith(_BEGINNINGS) and not _is_number(shown) else shown


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
