"""The configuration: the table of keys, what is derived from it, merging, and the shipped files."""

from __future__ import annotations

from typing import Any

__all__ = ["extend_cfg"]


def __getattr__(name: str) -> Any:
    """Import `extend_cfg` on first use: the report reads roles of keys without yacs and yaml."""
    if name == "extend_cfg":
        from .defaults import extend_cfg

        return extend_cfg
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
