"""The one switch for loaders that write into the data folder: splits, few-shot draws and lists of images."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_keeps = ContextVar("keeps", default=True)


@contextmanager
def keep_nothing() -> Iterator[None]:
    """Let loaders read what is kept, and write nothing."""
    token = _keeps.set(False)
    try:
        yield
    finally:
        _keeps.reset(token)


def keeps() -> bool:
    """Tell whether loaders may write into the data folder."""
    return _keeps.get()
