"""The metrics of each epoch, in metrics.csv in the output folder, in the progress bar, and in Weights & Biases."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.io.files import open_text_atomically
from cocoamix.io.progress import EpochBar
from cocoamix.io.steps import send_step
from cocoamix.io.texts import read_text

from .results import RESULTS
from .wandb_run import WandbRun, open_run

METRICS = "metrics.csv"
_FIRST, _LAST = ("session", "epoch", "phase", "lr", "loss", "acc"), ("seconds",)
Row = dict[str, str]  # cells as in the file


class EpochMetrics:
    """Averages the metrics of the steps of an epoch, and writes a row when the epoch ends.

    A row is written before anything else of its epoch is saved. A resumed run therefore finds the rows of all epochs
    that it does not repeat, and replaces the others, so the file has neither gaps nor duplicates.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._epoch: int | None = None  # the current one, counted from 1
        self._bar = EpochBar(0, 0)
        self._wandb: WandbRun | None = None

    def begin(
        self, cfg: CfgNode, folders: Iterable[Path | str], done: int, epochs: int, session: int | None = None
    ) -> None:
        """Begin a training run or a session, of which some epochs may be done already.

        Args:
            cfg: The run's configuration.
            folders: Where to look for the rows of a resumed run. The first folder that has the file is used.
            done: Number of epochs already done.
            epochs: Total number of epochs.
            session: Number of the session; None for a method without sessions.
        """
        self._path, self._session = Path(cfg.OUTPUT_DIR, METRICS), session
        is_new = done == 0 and not session
        if is_new:
            self.rows = []
            self._path.unlink(missing_ok=True)
        else:
            found = self.rows or _find_rows(folders)
            self.rows = [row for row in found if _place(row) <= (session or 0, done)]
            self._write()
        self._bar = EpochBar(done, epochs)
        if cfg.TRAIN.WANDB and (done < epochs or not Path(cfg.OUTPUT_DIR, RESULTS).is_file()):
            if self._wandb is None:
                self._wandb = open_run(cfg, is_new)
            self._wandb.send(self.rows)

    def begin_epoch(self, epoch: int, epochs: int, steps: int, phase: str) -> None:
        """Begin an epoch, counted from 0, of `steps` steps."""
        self._epoch, self._phase, self._steps, self._began = epoch + 1, phase, steps, time.monotonic()
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._rate: float | None = None
        self._bar.begin_epoch(epoch + 1, epochs, phase)
        send_step(epoch=epoch + 1, epochs=epochs, phase=phase, session=self._session)

    def add(self, values: Mapping[str, float], rate: Callable[[], float]) -> None:
        """Record the metrics of a step. A step outside an epoch is ignored.

        Args:
            values: The metrics by name.
            rate: Returns the learning rate of the step.
        """
        if self._epoch is None:
            return
        if self._rate is None:
            self._rate = rate()
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1
        self._bar.step(self._steps, f"loss {values['loss']:.3f}, acc {values['acc']:.1f}, lr {self._rate:.1e}")

    def end_epoch(self, epochs: int) -> None:
        """Write the epoch's row. `epochs` is the total number of epochs, which the epoch may have changed."""
        assert self._epoch is not None
        row: Row = {} if self._session is None else {"session": str(self._session)}
        row |= {"epoch": str(self._epoch), "phase": self._phase}
        if self._rate is not None:
            row["lr"] = _number(self._rate)
        row |= {name: _number(total / self._counts[name]) for name, total in self._sums.items()}
        self.rows.append({**row, "seconds": f"{time.monotonic() - self._began:.3f}"})
        self._write()
        self._bar.end_epoch(self._epoch, epochs)
        self._epoch = None
        if self._wandb is not None:
            self._wandb.send(self.rows)

    def end(self, results: Mapping[str, float]) -> None:
        """End the run. `results` are those of its evaluation, empty if there was none."""
        if self._wandb is not None:
            self._wandb.end(results)
            self._wandb = None

    def _write(self) -> None:
        if not self.rows:  # the run to resume has no table of epochs
            self._path.unlink(missing_ok=True)
            return
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        first = [name for name in _FIRST if name in names]
        columns = [*first, *(name for name in names if name not in (*_FIRST, *_LAST)), *_LAST]
        with open_text_atomically(self._path) as file:
            writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)


def _number(value: float) -> str:
    return f"{value:.6g}"


def _place(row: Row) -> tuple[int, int]:
    return int(row.get("session") or 0), int(row["epoch"])


def _find_rows(folders: Iterable[Path | str]) -> list[Row]:
    """Return the rows of the first folder that has the file; empty if no folder has it, or if it is damaged."""
    for folder in folders:
        path = Path(folder, METRICS)
        if path.is_file():
            try:
                return read_metrics(path)
            except UserError as error:
                print(f"Note: {error} The rows of the epochs that are done are lost.")
                return []
    return []


def read_metrics(path: Path) -> list[Row]:
    """Read the rows of a metrics.csv, each without its empty cells."""
    try:
        reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
        columns: Sequence[str] = reader.fieldnames or ()
        rows = [{name: cell for name, cell in row.items() if cell} for row in reader]
        places = [_place(row) for row in rows]
        for row in rows:
            for name, cell in row.items():
                if name not in ("phase", None):
                    float(cell)
    except (csv.Error, KeyError, ValueError, TypeError) as error:
        raise UserError(f"{path} is not a table of epochs.") from error
    if "epoch" not in columns or None in columns or places != sorted(set(places)) or any(None in row for row in rows):
        raise UserError(f"{path} is not a table of epochs.")
    return rows
