"""The text of a cell, for all renderers."""

from __future__ import annotations

from cocoamix.report.model.tables import Column, Value

MISSING = "\u2013"  # an en dash
LEGEND = f"Accuracy in percent: mean ± standard deviation (of the population) over seeds; {MISSING} is missing"


def number(value: Value, column: Column) -> str:
    """Return the mean of a cell, or its text, or "" if it is missing."""
    if value.mean is None:
        return value.text
    if column.key.startswith("p_") and value.mean < 0.001:
        return "<0.001"
    decimals = column.decimals if value.decimals is None else value.decimals
    text = f"{value.mean:{'+' if column.signed else ''}.{decimals}f}"
    # A difference of -0.001 is "+0.00", not "-0.00".
    return text.replace("-", "+") if column.signed and float(text) == 0 else text


def spread(value: Value, column: Column) -> str:
    """Return the deviation of a cell, or ""."""
    return "" if value.mean is None or value.std is None else f"{value.std:.{column.decimals}f}"


def plain(value: Value, column: Column) -> str:
    """Return a cell as plain text."""
    if value.missing:
        return MISSING
    deviation = spread(value, column)
    return number(value, column) + (f" ± {deviation}" if deviation else "")
