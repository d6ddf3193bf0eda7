"""One run at a time in a folder: two would overwrite each other's checkpoints and results."""

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
_LONGEST = 300  # characters shown of what the holder says of itself
_PATIENCE = 1.0  # seconds that a worker of a killed run may take to let go, where it was only just forked

_held: set[int] = set()  # descriptors of this process


def _let_go_in_child() -> None:
    """Close a forked child's copies: a loader's worker that outlives a killed run must not keep its lock."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go_in_child)


class FolderLock:
    """Holds a folder while the context lasts. The system frees it when the process dies, however it dies.

    Where the system or the file system has no locks, a printed note says so, and the run proceeds.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.path = self.folder / LOCK
        self._descriptor: int | None = None

    def __enter__(self) -> FolderLock:
        try:
            self._descriptor = self._take_in_time()
        except BlockingIOError:
            raise UserError(
                f"Another run is at work in {self.folder}: {self._holder()}. "
                "Wait until it ends, or use another --output-dir."
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
        if self._descriptor in _held:  # else this is a forked child
            self.path.unlink(missing_ok=True)  # before it is free, so that it is not the next holder's
            _held.remove(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = None

    def _take_in_time(self) -> int:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                descriptor = self._take()
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.05)
            else:
                if descriptor is not None:
                    return descriptor

    def _take(self) -> int | None:
        """Return the descriptor of the locked file; None if its last holder has removed it meanwhile."""
        import fcntl  # here, because not every system has it

        # No link is followed: the file is about to be overwritten.
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
        """Return what the holder says of itself, as one short line."""
        try:
            with self.path.open("rb") as file:
                said = file.read(4096).decode(errors="replace").strip()
        except OSError:
            said = ""
        said = "".join(letter if letter.isprintable() else "?" for letter in said)
        return (said if len(said) <= _LONGEST else f"{said[:_LONGEST]}...") or "a process that has not said which"


def _describe_this_process() -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    return f"process {os.getpid()} on {socket.gethostname()} since {since} ({shorten(shlex.join(sys.argv))})\n"
