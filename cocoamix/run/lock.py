"""Allows one run at a time in a folder: two would overwrite each other's checkpoints and results."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from pathlib import Path
from types import TracebackType

from cocoamix.errors import UserError, shorten

LOCK = ".lock"
_LONGEST = 300  # characters of the holder's description
_PATIENCE = 1.0  # seconds to wait, because a newly forked worker of a killed run may hold the lock for a moment

_held: set[int] = set()  # descriptors of this process


def _release_in_child() -> None:
    """Close the inherited descriptors in a forked child: a worker that outlives a killed run must not hold the lock."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


class FolderLock:
    """A context that locks a folder. The system releases the lock when the process ends for any reason.

    If the file system does not support locks, a note is printed and the run proceeds.

    Args:
        folder: The folder.
        other: What to use if another run holds the folder, for the message.
    """

    def __init__(self, folder: str | os.PathLike[str], other: str = "another --output-dir") -> None:
        self.folder, self._other = Path(folder), other
        self.path = self.folder / LOCK
        self._descriptor: int | None = None

    def __enter__(self) -> FolderLock:
        try:
            self._descriptor = self._acquire_in_time()
        except BlockingIOError:
            raise UserError(
                f"Another run is working in {self.folder}: {self._holder()}. Wait until it ends, or use {self._other}."
            ) from None
        except (ImportError, OSError) as error:
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
            print(f"Note: {self.folder} cannot be locked ({reason}). Start no other run in it before this one ends.")
            return self
        _held.add(self._descriptor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor in _held:  # not in a forked child
            self.path.unlink(missing_ok=True)  # before the release, so that the next holder's file is not deleted
            _held.remove(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = None

    def _acquire_in_time(self) -> int:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                descriptor = self._acquire()
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.05)
            else:
                if descriptor is not None:
                    return descriptor

    def _acquire(self) -> int | None:
        """Return the descriptor of the locked file; None if its last holder has just removed it."""
        import fcntl  # not available on every system

        # Do not follow links: the file is about to be overwritten.
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_there(descriptor):
                os.close(descriptor)
                return None
            os.ftruncate(descriptor, 0)
            os.write(descriptor, _describe_this_process().encode(errors="replace"))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _is_there(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _holder(self) -> str:
        """Return the holder's description of itself, as one short line."""
        try:
            with self.path.open("rb") as file:
                text = file.read(4096).decode(errors="replace").strip()
        except OSError:
            text = ""
        text = "".join(letter if letter.isprintable() else "?" for letter in text)
        return (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...") or "an unknown process"


def _describe_this_process() -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return f"process {os.getpid()} on {socket.gethostname()} since {since} ({shorten(shlex.join(sys.argv))})\n"
