"""Keeps the terminal output of a run brief, while the log gets everything.

`detail` is for lines that only the log needs. Unless `brief` is active, it is the same as `print`, so that inside
another code base trainers print everything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

_EPOCH_LINE = "epoch ["  # how a training line starts, which CoOp's parsers look for
_is_brief = False
_bars: list[Callable[[], None]] = []  # the functions that close the open bars


@contextmanager
def brief(wanted: bool = True) -> Iterator[None]:
    """Keep the screen brief in this context: details go only to the log, and a terminal shows a bar for the epochs.

    It needs Dassl's logger, real or ours, as `sys.stdout`. Without one, or with `wanted` False, everything is
    printed.
    """
    global _is_brief
    logger: Any = sys.stdout
    if not wanted or getattr(logger, "console", None) is None or getattr(logger, "file", None) is None:
        yield
        return
    console = logger.console
    _is_brief = True
    if _on_terminal(console):
        logger.console = _AboveBars(console)
    try:
        yield
    finally:
        while _bars:
            _bars.pop()()
        if isinstance(logger.console, _AboveBars):
            logger.console.flush()  # an unfinished line
        logger.console = console
        _is_brief = False


@contextmanager
def log_only() -> Iterator[None]:
    """Print only to the log in this context, if the screen is brief."""
    logger: Any = sys.stdout
    if not _is_brief or getattr(logger, "console", None) is None:
        yield
        return
    console, logger.console = logger.console, _Nowhere()
    try:
        yield
    finally:
        logger.console = console


def detail(text: str) -> None:
    """Print a line that only the log needs."""
    with log_only():
        print(text)


def shows_bars() -> bool:
    """Return whether epochs are shown as a bar instead of as lines."""
    return _is_brief and isinstance(getattr(sys.stdout, "console", None), _AboveBars)


def bar_opens(close: Callable[[], None]) -> None:
    """Leave training lines out from now on, because a bar shows the same.

    Args:
        close: Closes the bar. It is also called when the context `brief` ends, even after an error.
    """
    _bars.append(close)


def bar_closes(close: Callable[[], None]) -> None:
    """Show training lines again, unless another bar is open. `close` is what `bar_opens` got."""
    if close in _bars:
        _bars.remove(close)


def _on_terminal(console: Any) -> bool:
    # Bars go to stderr. In a second run of a process, the console is real Dassl's first logger, which has no `isatty`.
    return all(getattr(stream, "isatty", bool)() for stream in (console, sys.stderr))


class _Nowhere:
    """A console that shows nothing."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def isatty(self) -> bool:
        return False


class _AboveBars:
    """A terminal whose lines appear above the bars. A training line is left out while there is a bar."""

    def __init__(self, console: Any) -> None:
        self._console = console
        self._line = ""

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        self._show("".join(f"{line}\n" for line in lines if not (_bars and line.startswith(_EPOCH_LINE))))
        return len(text)

    def flush(self) -> None:
        self._show(self._line)
        self._line = ""
        self._console.flush()

    def _show(self, text: str) -> None:
        if text:
            with tqdm.external_write_mode(file=sys.stderr):  # where the bars are
                self._console.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._console, name)
