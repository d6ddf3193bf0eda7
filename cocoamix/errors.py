"""Mistakes a person can mend, as opposed to bugs."""

from __future__ import annotations

import difflib
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


def run_command(command: Callable[[], int | None], stopped: str) -> int:
    """Run a command; return its exit status, 2 for a mistake of the user, 130 with the words `stopped` for Ctrl-C."""
    try:
        return command() or 0
    except UserError as error:
        return report(error)
    except KeyboardInterrupt:
        print(stopped, file=sys.stderr)
        return 130
