"""A run in Weights & Biases, if TRAIN.WANDB is True. Needs the package wandb."""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from cocoamix.errors import UserError
from cocoamix.io.files import write_text
from cocoamix.io.texts import read_text

from .protocol import plain

ID_FILE = "wandb_id.txt"  # so that a resumed run stays one run in Weights & Biases


class WandbRun:
    """Sends the rows of metrics.csv in order; the number of a row is its step.

    Args:
        run: What `wandb.init` returned. A resumed run knows how many steps it has.
    """

    def __init__(self, run: Any) -> None:
        self._run = run
        self._sent = int(getattr(run, "step", 0) or 0)

    def send(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Send the rows that are not there yet."""
        for step in range(self._sent, len(rows)):
            values = {name: cell if name == "phase" else float(cell) for name, cell in rows[step].items()}
            self._run.log(values, step=step)
        self._sent = max(self._sent, len(rows))

    def end(self, results: Mapping[str, float]) -> None:
        """Add the results of the evaluation to the summary, and end the run."""
        self._run.summary.update({f"test/{name}": value for name, value in results.items()})
        self._run.finish()


def open_run(cfg: CfgNode, is_new: bool) -> WandbRun:
    """Begin a run in Weights & Biases, or resume that of the output folder unless `is_new` is set."""
    try:
        wandb = importlib.import_module("wandb")
    except ImportError as error:
        raise UserError(
            "TRAIN.WANDB is True, but the package wandb is not installed. Run `pip install wandb`, or use "
            "TRAIN.WANDB False."
        ) from error
    name = "/".join(Path(cfg.OUTPUT_DIR).parts[-5:])
    try:
        return WandbRun(
            wandb.init(
                project=cfg.TRAIN.WANDB_PROJECT,
                name=name,
                id=_id_of_run(cfg.OUTPUT_DIR, is_new),
                resume="allow",
                dir=cfg.OUTPUT_DIR,
                config=plain(cfg),
            )
        )
    except Exception as error:  # whatever it raises, the advice is the same
        raise UserError(
            f"Weights & Biases did not start a run ({error}). Run `wandb login`, set WANDB_MODE=offline, or use "
            "TRAIN.WANDB False."
        ) from error


def _id_of_run(folder: str, is_new: bool) -> str:
    path = Path(folder, ID_FILE)
    known = "" if is_new or not path.is_file() else read_text(path).strip()
    if not (known.isalnum() and len(known) <= 64):
        known = uuid.uuid4().hex[:16]
        write_text(path, known + "\n")
    return known
