"""Writes files atomically: a reader never sees half a file, even if the writer is killed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any

from cocoamix.errors import UserError
from cocoamix.refusals import shorten

from .parts import part_name, sweep, sweep_once


@contextmanager
def open_atomically(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Yield a temporary file next to `path`. At the end of the context, it is flushed to disk and replaces `path`."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep_once(target.parent)
    # Not `tempfile`, whose files are private to the user, as `path` would be then.
    temporary = target.with_name(part_name(target.name))
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary)):
            raise OSError(error.errno, error.strerror, str(target)) from error  # the name that the user knows
        raise


@contextmanager
def open_text_atomically(path: str | os.PathLike[str]) -> Iterator[IO[str]]:
    """Like `open_atomically`, for text in UTF-8."""
    with open_atomically(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="\n")
        yield text
        text.flush()
        text.detach()


def write_atomically(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> None:
    """Call `write(file)` on a temporary file next to `path`, and move it into place when it is on disk."""
    with open_atomically(path) as file:
        write(file)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda file: file.write(text.encode()))


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write a JSON file atomically, indented and with a final newline."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def check_writable(directory: str) -> None:
    """Check that an output folder can be written, and delete temporary files of killed writers in it."""
    if directory.startswith("~"):
        raise UserError(
            f"The output folder {shorten(directory)} begins with ~, which the shell has not expanded. Give it in full, "
            "or write ./~... for a folder of that name."
        )
    if not directory.isascii():
        directory.encode()  # logs and results are UTF-8
    try:
        os.makedirs(directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
        sweep(directory)
    except OSError as error:
        raise UserError(f"The output folder {shorten(directory)} cannot be written: {error.strerror}.") from error


def check_still_there(directory: str) -> None:
    """Raise a UserError if an output folder was deleted during its run, because earlier files would be missing."""
    if directory and not os.path.isdir(directory):
        raise UserError(f"The output folder {shorten(directory)} was deleted during its run. Start the run again.")
