"""Removes the log of a start that failed, so that the next start finds none and writes log.txt, as parsers expect."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

_WORK = ("train", "begin_training", "test")  # the methods of trainers in which a run does its work
_SIGNS = (b"epoch", b"=> result", b"Finish", b"Checkpoint saved", b"Evaluate on")  # how lines about work begin


def open_log() -> Any:
    """Return the log file that Dassl's logger, real or ours, is writing; None without one."""
    return getattr(sys.stdout, "file", None)


def remove_log(error: BaseException, before: Any = None) -> None:
    """Delete the log of this process if an error ended the run before any training or evaluation began.

    Args:
        error: The error. If it is from inside a trainer's training or evaluation, the log stays.
        before: The log that was open before the run, which is not its log.
    """
    log = open_log()
    # A log that was opened for writing holds nothing of an earlier process.
    if log is None or log is before or getattr(log, "mode", "") not in ("w", "x") or _was_at_work(error.__traceback__):
        return
    with suppress(OSError, ValueError):
        log.flush()
        with open(log.name, "rb") as file:
            begun = any(line.lstrip().startswith(_SIGNS) for line in file)
        if not begun:
            os.unlink(log.name)


def _was_at_work(trace: TracebackType | None) -> bool:
    while trace is not None:
        if trace.tb_frame.f_code.co_name in _WORK:
            return True
        trace = trace.tb_next
    return False
