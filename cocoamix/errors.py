"""Mistakes a person can mend, as opposed to bugs."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
import reprlib
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, TextIO

from .refusals import in_words, shorten

# Control characters, which a terminal obeys; those that turn the direction of writing; halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NO_TEXT = re.compile("[\ud800-\udfff]")
_LONG_WORD = re.compile(r"\S{256,}")  # no file name is so long
_LONGEST = 1000  # letters of a message
_REFUSED_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOENT)


class UserError(Exception):
    """Bad input. The message is whole sentences: what is wrong, where, and the way out.

    It is safe to print: what a file holds cannot steer the terminal, nor fill it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_harmless(message))

    def __reduce__(self) -> tuple[Any, ...]:
        """Let every kind of it come whole from another process, whatever its constructor takes."""
        return _restore, (type(self), self.args, vars(self))


def _restore(kind: type[UserError], arguments: tuple[Any, ...], state: dict[str, Any]) -> UserError:
    error = kind.__new__(kind)
    error.args = arguments
    vars(error).update(state)
    return error


class MistakesError(UserError):
    """Several mistakes, each on a line of its own below a first one that says what they have in common."""

    def __init__(self, message: str, mistakes: Iterable[str]) -> None:
        Exception.__init__(self, "\n".join([_harmless(message), *(f"  {_harmless(one)}" for one in mistakes)]))


def _harmless(message: str) -> str:
    return shorten(_LONG_WORD.sub(lambda word: shorten(word[0], 120), printable(message)), _LONGEST)


def printable(text: str) -> str:
    """Return a text with escapes, such as \\x1b, for what a terminal would obey and for what is no character."""
    return _UNPRINTABLE.sub(_escape, text)


def encodable(text: str) -> str:
    """Return a text that UTF-8 can hold: bytes of a file name that are not UTF-8 become escapes, such as \\xe9."""
    return _NO_TEXT.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte of a file name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return found[0].encode("unicode_escape").decode()


def brief(value: Any) -> str:
    """Return a value as Python writes it, with the middle left out if it is long. For messages."""
    try:
        return shorten(_BRIEF.repr(value), 160)
    except ValueError:  # an integer of more digits than Python turns into text
        return "a number of thousands of digits"


def _brief_writer() -> reprlib.Repr:
    writer = reprlib.Repr()
    writer.maxstring = writer.maxlong = writer.maxother = 100
    writer.maxlevel, writer.maxlist, writer.maxtuple, writer.maxdict = 4, 8, 8, 4
    return writer


_BRIEF = _brief_writer()


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


def known_names(value: object, allowed: Iterable[object]) -> str:
    """Return the end of a message about an unknown name: ' Did you mean X? Known: X, Y.', with each name once."""
    names = [str(choice) for choice in allowed]
    # Registries have a name with and without a prefix.
    once = [name for name in dict.fromkeys(names) if "." not in name or name.rsplit(".", 1)[-1] not in names]
    meant = nearest(value, once) if isinstance(value, str) else ""
    return f"{meant} Known: {some_of(once) or 'nothing'}."


def check_choice(key: str, value: object, allowed: Iterable[object]) -> None:
    """Refuse a value of config key (or flag) `key` that is not one of `allowed`."""
    choices = list(allowed)
    if value not in choices:
        what = "is not set." if value == "" else f"is {brief(value)}, which is not known."
        raise UserError(f"{key} {what}{known_names(value, choices)}")


def report(error: UserError) -> int:
    """Tell a person of a mistake, on the console and in the log of a run; return the exit status."""
    message = f"error: {error}"
    log = getattr(sys.stdout, "file", None)  # Dassl's logger keeps the log's file there
    if log is not None:
        _print(message.encode("utf-8", "backslashreplace").decode(), log)
    _print(message, sys.stderr)
    _print("", sys.stdout, end="")
    return 2


def run_command(command: Callable[[], int | None], stopped: str, foreign: bool = False, work: bool = False) -> int:
    """Run a command and return its exit status; every command of the package ends through here.

    A mistake of the user, or what the system refuses, is a sentence and 2; Ctrl-C is the sentence `stopped` and 130; a
    reader that has gone, as of `| head`, is nothing to tell: 0.
    foreign: the code is another tree's; what the system refuses there keeps its traceback.
    work: the command does more than print. A reader that goes stops it half-way, and its status is that of a signal.
    """
    with hearing_ctrl_c(stopped), _refusals_in_threads() as in_threads:
        try:
            try:
                status = command() or 0
            except SystemExit:  # as after a help
                _flush()
                raise
            _flush()
            return report(UserError(in_threads[0])) if in_threads and not status else status
        except UserError as error:
            return report(error)
        except KeyboardInterrupt:
            _print(stopped, sys.stderr)
            _print("", sys.stdout, end="")
            return 130
        except Exception as error:
            if isinstance(error, BrokenPipeError) and _reader_has_gone():
                discard(sys.__stdout__)
                return 128 + 13 if work else 0
            sentence = None if foreign else in_words(error)
            if sentence is None:
                raise
            _let_go(error)
            return report(UserError(sentence))


def _let_go(error: BaseException) -> None:
    """Delete what an error has left half-made, such as loaders, without Python's notes on how they end."""
    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    error.__traceback__ = error.__context__ = error.__cause__ = None
    sys.unraisablehook = before


@contextlib.contextmanager
def hearing_ctrl_c(stopped: str) -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, and end the process at once while a module is imported.

    Packages swallow what is raised while they are imported, or make another error of it. Nothing is lost then: a run
    that is killed at any moment resumes.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield  # somebody else hears it
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not _imports(frame):
            raise KeyboardInterrupt
        _print(stopped, sys.stderr)
        os._exit(130)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _imports(frame: FrameType | None) -> bool:
    """Say whether a frame is of an import, or was called by one."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _refusals_in_threads() -> Iterator[list[str]]:
    """Collect the writes that the system refuses to threads, such as TensorBoard's, and tell each at once."""
    found: list[str] = []
    before = threading.excepthook

    def note(failed: threading.ExceptHookArgs) -> None:
        error = failed.exc_value
        sentence = in_words(error) if isinstance(error, OSError) and error.errno in _REFUSED_WRITES else None
        if sentence is None:
            before(failed)
        else:
            _print(f"warning: {sentence}", sys.stderr)
            found.append(sentence)

    threading.excepthook = note
    try:
        yield found
    finally:
        threading.excepthook = before


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


def _flush() -> None:
    """Write what was printed. A reader that has gone, or a full disk, shows here, not when the interpreter ends."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _print(message: str, stream: TextIO | Any, end: str = "\n") -> None:
    """Print to a stream that may be closed, on a full disk, or without a reader; then it goes nowhere."""
    try:
        print(message, file=stream, end=end, flush=True)
    except (OSError, ValueError):
        discard(stream)


def discard(stream: TextIO | Any) -> None:
    """Let what is left to write to a stream go nowhere, so that the interpreter does not complain at its end."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it has no file, or it is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
