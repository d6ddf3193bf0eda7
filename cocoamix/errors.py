"""Errors that the user can fix, as opposed to bugs, and the exit status of commands."""

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

from .refusals import explain, shorten

# Control characters, characters that change the direction of writing, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_LONG_WORD = re.compile(r"\S{256,}")  # longer than any file name
_LONGEST = 1000  # characters of a message
_REFUSED_WRITES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.ENOENT)


class UserError(Exception):
    """Bad input. The message is one or more sentences: what is wrong, where, and how to fix it.

    The message is safe to print: it is short and has no control characters, whatever a file contains.
    """

    def __init__(self, message: str) -> None:
        super().__init__(_harmless(message))

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling of subclasses whose constructors take other arguments."""
        return _restore, (type(self), self.args, vars(self))


def _restore(kind: type[UserError], arguments: tuple[Any, ...], state: dict[str, Any]) -> UserError:
    error = kind.__new__(kind)
    error.args = arguments
    vars(error).update(state)
    return error


class CombinedUserError(UserError):
    """Several errors, one per line below a line that introduces them."""

    def __init__(self, message: str, mistakes: Iterable[str]) -> None:
        Exception.__init__(self, "\n".join([_harmless(message), *(f"  {_harmless(one)}" for one in mistakes)]))


def _harmless(message: str) -> str:
    return shorten(_LONG_WORD.sub(lambda word: shorten(word[0], 120), printable(message)), _LONGEST)


def printable(text: str) -> str:
    r"""Return a string with control characters and lone surrogates escaped, such as \x1b."""
    return _UNPRINTABLE.sub(_escape, text)


def encodable(text: str) -> str:
    r"""Return a string that can be encoded as UTF-8: other bytes of a file name become escapes, such as \xe9."""
    return _SURROGATES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # how Python represents a byte of a file name that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return found[0].encode("unicode_escape").decode()


def brief(value: Any) -> str:
    """Return the repr of a value for a message, without its middle if it is long."""
    try:
        return shorten(_BRIEF.repr(value), 160)
    except ValueError:  # an integer with more digits than Python converts to text
        return "a number with thousands of digits"


def _brief_writer() -> reprlib.Repr:
    writer = reprlib.Repr()
    writer.maxstring = writer.maxlong = writer.maxother = 100
    writer.maxlevel, writer.maxlist, writer.maxtuple, writer.maxdict = 4, 8, 8, 4
    return writer


_BRIEF = _brief_writer()


def some_of(names: Iterable[str], limit: int = 300) -> str:
    """Join as many names as fit into `limit` characters with commas, and count the rest."""
    shown, rest = "", list(names)
    while rest and len(shown) + len(rest[0]) <= limit:
        shown += ", " * bool(shown) + rest.pop(0)
    if not rest:
        return shown
    return f"{shown} and {len(rest)} more" if shown else shorten(rest[0], limit)


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return ' Did you mean X?' for the allowed name closest to `name`; empty if none is close."""
    if len(name) > 200:  # not a typo, and slow to compare
        return ""
    choices = list(allowed)
    lowered = {choice.lower(): choice for choice in reversed(choices)}
    found = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.5)
    return f" Did you mean {lowered[found[0]]}?" if found else ""


def known_names(value: object, allowed: Iterable[object]) -> str:
    """Return the end of a message about an unknown name: ' Did you mean X? Known: X, Y.', with each name once."""
    names = [str(choice) for choice in allowed]
    # Registries have most names twice, with and without a prefix.
    once = [name for name in dict.fromkeys(names) if "." not in name or name.rsplit(".", 1)[-1] not in names]
    meant = nearest(value, once) if isinstance(value, str) else ""
    return f"{meant} Known: {some_of(once) or 'nothing'}."


def check_choice(key: str, value: object, allowed: Iterable[object]) -> None:
    """Raise a UserError if the value of the config key or flag `key` is not one of `allowed`."""
    choices = list(allowed)
    if value not in choices:
        what = "is not set." if value == "" else f"is {brief(value)}, which is not known."
        raise UserError(f"{key} {what}{known_names(value, choices)}")


def report(error: UserError) -> int:
    """Print an error on the console and in the log of a run; return the exit status."""
    message = f"error: {error}"
    log = getattr(sys.stdout, "file", None)  # the log file of Dassl's logger
    if log is not None:
        _print(message.encode("utf-8", "backslashreplace").decode(), log)
    _print(message, sys.stderr)
    _print("", sys.stdout, end="")
    return 2


def run_command(command: Callable[[], int | None], stopped: str, foreign: bool = False, work: bool = False) -> int:
    """Run a command and return its exit status. All commands of the package use this function.

    A user or system error prints a sentence and returns 2; Ctrl-C prints `stopped` and returns 130. If
    standard output is closed, as by `| head`, nothing is printed and 0 is returned.

    Args:
        command: The command; it returns its exit status, or None for 0.
        stopped: The sentence for Ctrl-C.
        foreign: Whether it runs code of another tree. System errors then keep their traceback.
        work: Whether the command does more than print. If a closed standard output stops it, it then returns 141.
    """
    with handle_ctrl_c(stopped), _failed_writes_in_threads() as in_threads:
        try:
            try:
                status = command() or 0
            except SystemExit:  # from --help
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
            if isinstance(error, BrokenPipeError) and _stdout_is_closed():
                discard(sys.__stdout__)
                return 128 + 13 if work else 0
            sentence = None if foreign else explain(error)
            if sentence is None:
                raise
            _drop_traceback(error)
            return report(UserError(sentence))


def _drop_traceback(error: BaseException) -> None:
    """Release objects that the traceback keeps alive, such as loaders, and silence errors of their destructors."""
    before, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    error.__traceback__ = error.__context__ = error.__cause__ = None
    sys.unraisablehook = before


@contextlib.contextmanager
def handle_ctrl_c(stopped: str) -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, or end the process at once during an import.

    Some packages swallow exceptions during their import, or turn them into others. Nothing is lost: a run that is
    killed at any moment resumes.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield  # another handler is installed
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
    """Return whether a frame belongs to an import, or was called during one."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _failed_writes_in_threads() -> Iterator[list[str]]:
    """Collect failed writes of threads, such as TensorBoard's, and print a warning as soon as one occurs."""
    found: list[str] = []
    before = threading.excepthook

    def note(failed: threading.ExceptHookArgs) -> None:
        error = failed.exc_value
        sentence = explain(error) if isinstance(error, OSError) and error.errno in _REFUSED_WRITES else None
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


def _stdout_is_closed() -> bool:
    """Return whether the broken pipe is standard output, not a pipe between processes."""
    if sys.__stdout__ is None or not hasattr(select, "poll"):
        return True
    poll = select.poll()
    try:
        poll.register(sys.__stdout__.fileno(), 0)  # errors are reported in any case
    except (OSError, ValueError):  # it has no file
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _flush() -> None:
    """Flush standard output, so that a closed pipe or a full disk shows now and not when the interpreter exits."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _print(message: str, stream: TextIO | Any, end: str = "\n") -> None:
    """Print to a stream; discard the text if the stream is closed or the disk is full."""
    try:
        print(message, file=stream, end=end, flush=True)
    except (OSError, ValueError):
        discard(stream)


def discard(stream: TextIO | Any) -> None:
    """Redirect a stream to the null device, so that flushing it at exit raises no error."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it has no file, or it is closed
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
