"""Messages for system errors: a full disk, full shared memory, a bad file name, a missing package."""

from __future__ import annotations

import errno
import os
import re
import sys
from typing import Any

# torch's messages, from a process that loads images or from the one that waits for it.
_SHARED_MEMORY = re.compile(r"\(shm\)|Bus error|</torch_\w+>")
_WORKER = re.compile(r"DataLoader worker \(pid.*\) (is killed|exited unexpectedly)")

# Module: what to install with pip. torch and torchvision are installed together, so that their builds match.
_PACKAGES = {
    "torch": "torch torchvision",
    "torchvision": "torch torchvision",
    "PIL": "pillow",
    "yaml": "pyyaml",
    **{name: name for name in ("ftfy", "matplotlib", "numpy", "regex", "safetensors", "scipy", "tqdm", "yacs")},
}


def explain(error: BaseException) -> str | None:
    """Return the message for a system error and what to do about it; None for any other error."""
    if isinstance(error, OSError):
        return _of_file(error)
    if isinstance(error, UnicodeEncodeError):
        return _of_encoding(error)
    if isinstance(error, ModuleNotFoundError):
        return _of_package(error)
    if not isinstance(error, RuntimeError):
        return None
    if _SHARED_MEMORY.search(str(error)) or _WORKER.search(str(error)):
        return (
            "A process that loads images was killed; probably memory or shared memory (/dev/shm) is full. Lower "
            "DATALOADER.NUM_WORKERS, or enlarge the shared memory (docker run --shm-size=2g)."
        )
    return None


def shorten(text: str, most: int = 150) -> str:
    """Return a string without its middle if it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most - most // 3]}...{text[-(most // 3) :]}"


def _of_package(error: ModuleNotFoundError) -> str | None:
    """Return the message for a package that is not installed; None for a module of an installed one, which is a bug."""
    if error.name not in _PACKAGES:
        return None
    return (
        f"This needs the package {error.name}, which {sys.executable} does not have. Install it with "
        f"`pip install {_PACKAGES[error.name]}`."
    )


def _of_file(error: OSError) -> str:
    if error.strerror is None:  # a process that loads images sends its whole traceback, which ends with the error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return shorten(lines[-1])
    names = " -> ".join(shorten(_text(name)) for name in (error.filename, error.filename2) if name is not None)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = f"{names} cannot be written: the disk is full" if names else "The disk or the shared memory is full"
        return f"{what} ({error.strerror}). Free some space and start again."
    return f"{error.strerror}: {names}." if names else f"{error.strerror}."


def _text(name: Any) -> str:
    return os.fsdecode(name) if isinstance(name, (str, bytes)) else str(name)


def _of_encoding(error: UnicodeEncodeError) -> str:
    """Return the message for a text that cannot be written.

    Surrogates represent bytes of a file name that are not UTF-8.
    """
    if not re.search(r"[\ud800-\udfff]", error.object[error.start : error.end]):
        return f"The output cannot show characters outside {error.encoding}. Set PYTHONIOENCODING=utf-8."
    before, after = error.object[: error.start], error.object[error.start :]
    word = re.split(r"[\s'\"]", before)[-1] + re.split(r"[\s'\"]", after)[0]
    return f"The name {shorten(ascii(word))} is not UTF-8. Rename the file or folder."
