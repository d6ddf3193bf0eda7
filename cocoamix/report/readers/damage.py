"""Refuse values that no run writes. A file with one is damaged, and its other numbers cannot be trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cocoamix.config import roles
from cocoamix.errors import brief, printable

_LONGEST_NAME = 100  # characters; a name becomes a label in tables and part of file names


def refuse_damaged(settings: Mapping[str, Any], what: str, finite: bool = True) -> None:
    """Refuse settings with names or values that no run writes.

    Args:
        settings: The settings, by dotted key.
        what: Where they are, such as `config`.
        finite: Whether all numbers must be finite.
    """
    for key, value in settings.items():
        if printable(key) != key:
            raise ValueError(f"its {what} has a key {brief(key)}, which is not a valid name")
        if finite and not _is_sound(value):
            raise ValueError(f"its {what} has {key[:100]} {brief(value)}, which is not a valid value")


def _is_sound(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_sound, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or _is_unicode(value)


def _is_unicode(text: str) -> bool:
    """Return whether a string has no lone surrogate, which UTF-8 cannot encode."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def refuse_strings_for_numbers(config: Mapping[str, Any]) -> None:
    """Refuse a string in the config of our own results for a key that takes only numbers."""
    for key, value in config.items():
        declared = roles.find(key)
        numeric = isinstance(declared.default, (int, float)) and not isinstance(declared.default, bool)
        if numeric and isinstance(value, str) and str not in declared.also:
            raise ValueError(f"its config has {key} {brief(value)}, which is a string and not a number")


def refuse_invalid_name(name: str, what: str) -> None:
    """Refuse a string that cannot be a name, such as that of a trainer or a dataset."""
    if len(name) > _LONGEST_NAME or printable(name) != name:
        raise ValueError(f"its {what} is {brief(name)}, which is not a valid name")
