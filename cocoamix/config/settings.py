"""Settings as they are written: values in text, and dotted keys.

Nothing heavy is imported here: the trainers, the runner and the report, of which the last two need no torch, share it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


def literal(text: str) -> Any:
    """Return the number, boolean, list or the like that a text writes, or the text itself. Nothing in it is run."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, OverflowError):  # "{{}}" is a TypeError
        return text


def flatten(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested keys as dotted ones."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        flat.update(flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return flat
