"""A section of docs/KEYS.md: keys that belong together."""

from __future__ import annotations

from dataclasses import dataclass

from cocoamix.config.key import Key


@dataclass(frozen=True)
class Section:
    """A titled part of the table."""

    title: str
    text: str  # shown above the keys
    keys: tuple[Key, ...]
