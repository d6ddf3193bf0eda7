"""Mistakes a person can mend, as opposed to bugs."""

from __future__ import annotations

import difflib
import os
import re
import reprlib
import select
import sys
from collections.abc import Callable, Iterable
from typing import Any

# Control characters, which a terminal obeys; those that turn the direction of writing; halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LONG_WORD = re.compile(r"\S{256,}")  # no file name is so long
_LONGEST = 1000  # letters of a message


class UserError(Exception):
    """Bad input. The message is whole sentences: what is wrong, where, and the way out.

    It is safe to print: what a file holds cannot steer the terminal, nor fill it.
    """

    def __init__(self, message: str) -> None:
        text = _LONG_WORD.sub(lambda word: shorten(word[0], 120), printable(message))
        super().__init__(shorten(text, _LONGEST))


def printable(text: str) -> str:
    """Return a text with escapes, such as \\x1b, for what a terminal would obey and for what is no character."""
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def brief(value: Any) -> str:
    """Return a value as Python writes it, with the middle left out if it is long. For messages."""
    try:
        return _BRIEF.repr(value)
    except ValueError:  # an integer of more digits than Python turns into text
        return "a number of thousands of digits"


def _brief_writer() -> reprlib.Repr:
    writer = reprlib.Repr()
    writer.maxstring = writer.maxlong = writer.maxother = 100
    writer.maxlevel, writer.maxlist, writer.maxtuple, writer.maxdict = 4, 8, 8, 4
    return writer


_BRIEF = _brief_writer()


def shorten(text: str, most: int = 150) -> str:
    """Return a text without its middle if it is longer than so many letters."""
    return text if len(text) <= most else f"{text[: most - most // 3]}...{text[-(most // 3) :]}"


def some_of(names: Iterable[str], letters: int = 300) -> str:
    """List names, as many as fit into so many letters, and say how many more there are."""
    shown, rest = "", list(names)
    while rest and len(shown) + len(rest[0]) <= letters:
        shown += ", " * bool(shown) + rest.pop(0)
    if not rest:
        return shown
    return f"{shown} and {len(rest)} more" if shown else shorten(rest[0], letters)


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ' Did you mean X?' for the allowed name closest to `name`, or nothing."""
    if len(name) > 200:  # no typo, and comparing takes time
        return ""
    choices = list(allowed)
    lowered = {choice.lower(): choice for choice in reversed(choices)}
    found = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.5)
    return f" Did you mean {lowered[found[0]]}?" if found else ""


def check_choice(key: str, value: object, allowed: Iterable[object]) -> None:
    """Refuse a value of config key (or flag) `key` that is not one of `allowed`."""
    choices = list(allowed)
    if value not in choices:
        names = [str(choice) for choice in choices]
        # A name that another code base has, too, is there with a prefix as well: once is enough.
        listed = some_of(name for name in names if name.rsplit(".", 1)[-1] not in names or "." not in name)
        meant = nearest(value, names) if isinstance(value, str) else ""
        raise UserError(f"{key} is {brief(value)}, which is not known.{meant} Known: {listed or 'nothing'}.")


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
    names = [shorten(str(name), 300) for name in (error.filename, error.filename2) if name is not None]
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
