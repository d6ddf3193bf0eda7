"""The line per batch that log parsers read, and TensorBoard's scalars."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from cocoamix.io.screen import detail


class Meter:
    """The newest value and the average so far."""

    value = average = total = 0.0
    count = 0

    def add(self, value: float) -> None:
        """Add a value."""
        self.value, self.count = float(value), self.count + 1
        self.total += self.value
        self.average = self.total / self.count


class EpochLines:
    """The lines of an epoch, in Dassl's format.

    Args:
        epoch: The epoch, counted from 0.
        epochs: The number of epochs.
        batches: The number of batches.
        every: TRAIN.PRINT_FREQ.
    """

    def __init__(self, epoch: int, epochs: int, batches: int, every: int) -> None:
        self._epoch, self._epochs, self._batches, self._every = epoch, epochs, batches, every
        self._seconds, self._waited = Meter(), Meter()
        self.values: dict[str, Meter] = {}
        self._began = time.time()

    def read(self) -> None:
        """Note that a batch was read."""
        self._waited.add(time.time() - self._began)

    def end(self, batch: int, values: Mapping[str, float] | None, rate: float) -> None:
        """Note that a batch has ended, and print its line if it is due.

        Args:
            batch: Its number, counted from 0.
            values: The values to show; None if none of its images could be read.
            rate: The learning rate.
        """
        for name, value in (values or {}).items():
            self.values.setdefault(name, Meter()).add(value)
        self._seconds.add(time.time() - self._began)
        if self._batches < self._every or (self._every > 0 and (batch + 1) % self._every == 0):
            self._print(batch, rate)
        self._began = time.time()

    def _print(self, batch: int, rate: float) -> None:
        left = (self._epochs - self._epoch) * self._batches - batch - 1
        shown = " ".join(f"{name} {meter.value:.4f} ({meter.average:.4f})" for name, meter in self.values.items())
        parts = [
            f"epoch [{self._epoch + 1}/{self._epochs}]",
            f"batch [{batch + 1}/{self._batches}]",
            f"time {self._seconds.value:.3f} ({self._seconds.average:.3f})",
            f"data {self._waited.value:.3f} ({self._waited.average:.3f})",
            shown,
            f"lr {rate:.4e}",
            f"eta {timedelta(seconds=int(self._seconds.average * left))}",
        ]
        print(" ".join(part for part in parts if part))


class Scalars:
    """TensorBoard's scalars of a run. Without TensorBoard, or before `open`, none are written."""

    def __init__(self) -> None:
        self._writer: Any = None
        self._tried = False

    def open(self, folder: str) -> None:
        """Begin to write to a folder, once."""
        if self._tried:
            return
        self._tried = True
        try:
            # Imported here, because it takes seconds and an evaluation does not need it.
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            print("TensorBoard is not installed: scalars are not written. The log has everything.")
            return
        detail(f"TensorBoard scalars are written to {folder}")
        self._writer = SummaryWriter(log_dir=folder)

    def add(self, tag: str, value: float, step: int) -> None:
        """Write a value."""
        if self._writer is not None:
            self._writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """End the file. `open` begins another one."""
        if self._writer is not None:
            self._writer.close()
            self._writer, self._tried = None, False
