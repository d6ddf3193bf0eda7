"""The numbers of each epoch: a row of metrics.csv in the run's folder, a step of the bar, a row in Weights & Biases."""

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
from cocoamix.io.texts import read_text

from .results import RESULTS
from .wandb_run import WandbRun, open_run

METRICS = "metrics.csv"
_FIRST, _LAST = ("session", "epoch", "phase", "lr", "loss", "acc"), ("seconds",)
Row = dict[str, str]  # cells as they are in the file


class EpochMetrics:
    """Averages what the steps of an epoch return, and writes a row when the epoch ends.

    A row is written before anything of its epoch is saved. So a resumed run finds the rows of all epochs that it does
    not repeat, and replaces those that it repeats: the file has neither gaps nor duplicates.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._epoch: int | None = None  # the current one, counted from 1
        self._bar = EpochBar(0, 0)
        self._wandb: WandbRun | None = None

    def begin(
        self, cfg: CfgNode, folders: Iterable[Path | str], done: int, epochs: int, session: int | None = None
    ) -> None:
        """Begin a training, or a session of one, of which some epochs may be done.

        Args:
            cfg: The run's configuration.
            folders: Where a resumed run finds its rows: the first that has the file.
            done: How many epochs are done.
            epochs: How many there are.
            session: The number of the session, where there are several.
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

    def add(self, values: Mapping[str, float], rate: Callable[[], float]) -> None:
        """Record the numbers of a step. rate: returns its learning rate. A step outside an epoch is not recorded."""
        if self._epoch is None:
            return
        if self._rate is None:
            self._rate = rate()
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1
        self._bar.step(self._steps, f"loss {values['loss']:.3f}, acc {values['acc']:.1f}, lr {self._rate:.1e}")

    def end_epoch(self, epochs: int) -> None:
        """Write the epoch's row. epochs: how many there are, which the last epoch may have changed."""
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
        """End the training with the results of its evaluation, if there was one."""
        if self._wandb is not None:
            self._wandb.end(results)
            self._wandb = None

    def _write(self) -> None:
        if not self.rows:  # a resumed run of an older version
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
    """Return the rows of the first folder that has any."""
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
