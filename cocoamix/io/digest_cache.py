"""Hashes of the contents of files, kept in the user's cache, so that an unchanged file is read once on a machine."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from cocoamix.errors import UserError

from .paths import cache_folder

FILE = "digests.sqlite"
_SECONDS_TO_WAIT = 2.0  # for another run that writes
_KEYS_AT_ONCE = 500
_TABLE = "CREATE TABLE IF NOT EXISTS digests (key BLOB PRIMARY KEY, digest TEXT NOT NULL) WITHOUT ROWID"


class DigestCache:
    """A table of digests by path, size and modification time. Without a usable folder, it is empty."""

    def read(self, statuses: Mapping[str, tuple[int, int]]) -> dict[str, str]:
        """Return the known digests of files, by path. A status is a size and a modification time."""
        paths = {_key(path, status): path for path, status in statuses.items()}
        keys, found = list(paths), dict[str, str]()
        with suppress(sqlite3.Error, OSError, UserError), _open() as table:
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                part = keys[start : start + _KEYS_AT_ONCE]
                marks = ",".join("?" * len(part))
                rows = table.execute(f"SELECT key, digest FROM digests WHERE key IN ({marks})", part)
                found.update({paths[key]: str(digest) for key, digest in rows})
        return found

    def write(self, digests: Mapping[str, tuple[tuple[int, int], str]]) -> None:
        """Keep the digests of files, given with their statuses."""
        rows = [(_key(path, status), digest) for path, (status, digest) in digests.items()]
        if rows:
            with suppress(sqlite3.Error, OSError, UserError), _open() as table, table:
                table.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?)", rows)


def _key(path: str, status: tuple[int, int]) -> bytes:
    path = path if path.startswith(os.sep) else os.path.abspath(path)
    text = f"{path}\0{status[0]}\0{status[1]}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@contextmanager
def _open() -> Iterator[sqlite3.Connection]:
    """Open the table for one use: a connection must not pass to a forked process. A damaged file is deleted."""
    path = cache_folder() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with closing(sqlite3.connect(path, timeout=_SECONDS_TO_WAIT)) as table:
            table.execute("PRAGMA synchronous = OFF")  # it can be computed again
            table.execute(_TABLE)
            yield table
    except sqlite3.OperationalError:  # locked, or a disk that is full or read-only
        raise
    except sqlite3.DatabaseError:
        _delete(path)
        raise


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
