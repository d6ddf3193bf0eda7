"""Mistakes a person can mend, as opposed to bugs."""

from __future__ import annotations

import difflib
import os
import select
import sys
from collections.abc import Callable, Iterable


class UserError(Exception):
    """Bad input. The message is whole sentences: what is wrong, where, and the way out."""


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ' Did you mean X?' for the allowed name closest to `name`, or nothing."""
    choices = list(allowed)
    lowered = {choice.lower(): choice for choice in reversed(choices)}
    found = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.5)
    return f" Did you mean {lowered[found[0]]}?" if found else ""


def check_choice(key: str, value: object, allowed: Iterable[object]) -> None:
    """Refuse a value of config key (or flag) `key` that is not one of `allowed`."""
    choices = list(allowed)
    if value not in choices:
        names = [str(choice) for choice in choices]
        listed = ", ".join(names) or "nothing"
        raise UserError(f"{key} is {value!r}, which is not known.{nearest(str(value), names)} Known: {listed}.")


def report(error: UserError) -> int:
    """Tell a person of a mistake, on the console and in the log of a run; return the exit status."""
    message = f"error: {error}"
    log = getattr(sys.stdout, "file", None)  # Dassl's logger keeps the log's file there
    if log is not None:
        print(message, file=log, flush=True)
    print(message, file=sys.stderr)
    return 2


def run_command(command: Callable[[], int | None], stopped: str, foreign: bool = False) -> int:
    """Run a command and return its exit status; every command of the package ends through here.

    A mistake of the user, or what the system refuses, is a sentence and 2; Ctrl-C is the sentence `stopped` and 130; a
    reader that has gone, as of `| head`, is nothing to tell: 0.
    foreign: the code is another tree's; what the system refuses there keeps its traceback.
    """
    try:
        status = command() or 0
        sys.stdout.flush()  # a reader that has gone shows here, not when the interpreter ends
        return status
    except UserError as error:
        return report(error)
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return 130
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _reader_has_gone():
            _print_to_nobody()
            return 0
        if foreign:
            raise
        return report(UserError(_in_words(error)))


def _in_words(error: OSError) -> str:
    """Return a refusal of the system as a sentence that names the file, if it has one."""
    if error.strerror is None:
        return str(error)
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    return f"{error.strerror}: {' -> '.join(names)}." if names else f"{error.strerror}."


def _reader_has_gone() -> bool:
    """Say whether it is the standard output that is broken, not some pipe between processes."""
    if sys.__stdout__ is None or not hasattr(select, "poll"):
        return True
    poll = select.poll()
    try:
        poll.register(sys.__stdout__.fileno(), 0)  # errors are reported whether or not they are asked for
    except (OSError, ValueError):  # it has no file
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _print_to_nobody() -> None:
    """Let what is left to print go nowhere, so that the interpreter does not complain at its end."""
    if sys.__stdout__ is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())
