"""A switch that keeps datasets from writing splits, few-shot draws and image lists to the data folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_may_write = ContextVar("may_write", default=True)


@contextmanager
def write_nothing() -> Iterator[None]:
    """Keep datasets from writing files in this context. They still read those that exist."""
    token = _may_write.set(False)
    try:
        yield
    finally:
        _may_write.reset(token)


def may_write() -> bool:
    """Return whether datasets may write to the data folder."""
    return _may_write.get()
