"""Copies everything that is printed to a file."""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from typing import Any

from cocoamix.errors import discard

from .tools import mkdir_if_missing


class Logger:
    """Replaces `sys.stdout`: prints, and writes the same to the file `fpath`."""

    def __init__(self, fpath: str) -> None:
        self.console = sys.stdout
        self.file = open(fpath, "w", encoding="utf-8")  # noqa: SIM115 (open as long as the run)

    def write(self, msg: str) -> int:
        """Write to the file and the console."""
        if not self.file.closed:
            try:
                self.file.write(msg)
                self.file.flush()  # a killed process must leave its log behind
            except OSError as error:
                discard(self.file)
                error.filename = self.file.name
                raise
        return self.console.write(msg)

    def close(self) -> None:
        """Close only the file, because others still use the console."""
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        # flush, isatty, encoding, fileno, ...
        if name == "console":
            raise AttributeError(name)
        return getattr(self.console, name)


def setup_logger(output: str | None = None) -> None:
    """Copy what is printed from now on to `output`: a .txt or .log file, or a folder that gets a log.txt."""
    if output is None:
        return
    if isinstance(sys.stdout, Logger):  # a second run in this process gets its own log
        sys.stdout.close()
        sys.stdout = sys.stdout.console
    path = output if output.endswith((".txt", ".log")) else os.path.join(output, "log.txt")
    sys.stdout = Logger(_claim(path))


def _claim(path: str) -> str:
    """Create `path`, or a new name with the time if it exists, so that no log is overwritten. Return the name."""
    mkdir_if_missing(os.path.dirname(path))
    stamped = path + time.strftime("-%Y-%m-%d-%H-%M-%S")
    for number in count():
        name = path if number == 0 else stamped if number == 1 else f"{stamped}-{number}"
        try:
            with open(name, "x"):
                return name
        except FileExistsError:
            continue
    raise AssertionError("unreachable")
