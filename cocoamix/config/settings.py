"""Settings in text form: literal values and dotted keys.

This module imports nothing heavy: the runner and the report use it without torch.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any


def literal(text: str) -> Any:
    """Return the literal (number, boolean, list, ...) in a string, or else the string itself. No code is run."""
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
