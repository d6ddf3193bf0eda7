"""Treat all signals that end a process like Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[Callable[[], None]]:
    """Raise KeyboardInterrupt on signals that end a process, unless they are ignored, as SIGHUP is under nohup.

    Yields:
        A function that makes the process ignore these signals, to be called before cleaning up.
    """
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {one: signal.getsignal(one) for one in signals if signal.getsignal(one) is not signal.SIG_IGN}

    def set_all(handler: signal.Handlers | Callable[[int, FrameType | None], None]) -> None:
        for one in before:
            signal.signal(one, handler)

    set_all(_interrupt)
    try:
        yield lambda: set_all(signal.SIG_IGN)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
