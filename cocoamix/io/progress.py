"""Progress of long work: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")
_SECONDS_BETWEEN_LINES = 30.0


def progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield the items and show how far it is. Short work in a log prints nothing."""
    if sys.stderr.isatty():
        yield from tqdm(items, total=total, desc=what, leave=False)
        return
    start = last = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last > _SECONDS_BETWEEN_LINES and done < total:
            last = now
            remaining = (now - start) / done * (total - done)
            print(f"{what}: {done}/{total}, about {remaining:.0f} s left", flush=True)
