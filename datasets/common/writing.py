"""A switch for writing splits, few-shot draws and image lists to the data folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_keeps = ContextVar("keeps", default=True)


@contextmanager
def keep_nothing() -> Iterator[None]:
    """Let loaders read saved files, but write none."""
    token = _keeps.set(False)
    try:
        yield
    finally:
        _keeps.reset(token)


def keeps() -> bool:
    """Return whether loaders may write to the data folder."""
    return _keeps.get()
