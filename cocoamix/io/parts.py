"""Temporary files of `write_atomically`: their names, and the deletion of those left by killed writers.

A name contains the machine and process of the writer, because runs on several machines may share a folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import sys
import time
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

_NAME = re.compile(r"\.(?P<target>.+?)\.(?:(?P<machine>[0-9a-f]{8})-(?P<process>\d{1,10})-)?[0-9a-f]{8}\.part")
_SECONDS_OF_A_WRITE = 3600.0  # far longer than any write takes
_swept: set[Path] = set()  # folders that this process has swept


def part_name(target: str) -> str:
    """Return a new name for the temporary file of `target`."""
    return f".{target}.{this_machine()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.part"


def target_of(name: str) -> str | None:
    """Return the final name of a temporary file; None for any other file."""
    found = _NAME.fullmatch(name)
    return found["target"] if found else None


@cache
def this_machine() -> str:
    """Return an identifier of this boot of this machine or container."""
    about = [socket.gethostname()]
    with suppress(OSError):  # not on Linux
        about.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii"))
        about.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.blake2b("\n".join(about).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()


def sweep(folder: str | os.PathLike[str]) -> None:
    """Delete the temporary files in a folder whose writers are dead."""
    _swept.add(Path(folder))
    with suppress(OSError):  # it does not exist or is not ours to clean
        for path in [Path(entry.path) for entry in os.scandir(folder) if entry.name.endswith(".part")]:
            if _is_dead(path):
                path.unlink(missing_ok=True)


def sweep_once(folder: str | os.PathLike[str]) -> None:
    """Call `sweep` the first time that this process uses a folder."""
    if Path(folder) not in _swept:
        sweep(folder)


def _is_dead(path: Path) -> bool:
    """Return whether the writer of a file is dead. On another machine, this is judged by the time of the last write."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        return False
    if found["machine"] == this_machine() and sys.platform != "win32":
        return not _is_running(int(found["process"]))
    return time.time() - path.stat().st_mtime > _SECONDS_OF_A_WRITE


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's process
        return True
    return True
