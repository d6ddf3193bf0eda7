"""Shows the progress of long work: as a bar on a terminal, as an occasional line in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

from .screen import bar_closes, bar_opens, shows_bars

Item = TypeVar("Item")
_SECONDS_BETWEEN_LINES = 30.0


def progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield the items and show the progress. In a log, short work prints nothing."""
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


class EpochBar:
    """A bar over the epochs of a run. It shows nothing if epochs are printed as lines."""

    def __init__(self, done: int, total: int) -> None:
        self._bar: tqdm | None = None
        if shows_bars() and done < total:
            shape = "{desc}{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
            self._bar = tqdm(total=total, initial=done, bar_format=shape, leave=False)
            bar_opens(self.close)

    def begin_epoch(self, epoch: int, total: int, phase: str) -> None:
        """Show the number of the epoch that begins, counted from 1."""
        if self._bar is not None:
            self._bar.set_description_str(f"epoch {epoch}/{total} ({phase}) ", refresh=False)

    def step(self, steps: int, values: str) -> None:
        """Show that a step of the epoch is done. `values` are its metrics, and `steps` is the length of the epoch."""
        if self._bar is not None:
            self._bar.set_postfix_str(values, refresh=False)
            self._bar.update(1 / max(1, steps))

    def end_epoch(self, epoch: int, total: int) -> None:
        """Show that an epoch is done; remove the bar after the last. `total` may have changed."""
        if self._bar is not None:
            self._bar.total, self._bar.n = total, epoch
            self._bar.refresh()
            if epoch >= total:
                self.close()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            bar_closes(self.close)
