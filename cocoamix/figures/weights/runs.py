"""Finished runs of CoCoA-Mix, found by their folder, and opened with all that they were trained with."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cocoamix.config import keys
from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.run import recorded
from cocoamix.run.recorded import RecordedRun

TRAINER = "CoCoAMix"
_NEEDED = f"Give the folder of a finished run of {TRAINER}."


def find_run(folder: Path) -> RecordedRun:
    """Return the run in a folder, or say why there is none that can be drawn."""
    run = recorded.find_run(folder, needs_results=True)
    if run.trainer != TRAINER:
        raise UserError(f"The run in {folder} is one of {run.trainer}. {_NEEDED}")
    ensemble = flatten(run.config).get("TRAINER.COCOAMIX.ENSEMBLE", "coa")
    if ensemble != "coa":
        raise UserError(
            f"The run in {folder} has no learned weights: its TRAINER.COCOAMIX.ENSEMBLE is {ensemble}. Give the folder "
            "of a run with ENSEMBLE coa."
        )
    if run.trained is None:
        raise UserError(recorded.no_checkpoint(folder))
    return run


def open_run(run: RecordedRun, root: str = "") -> Any:
    """Return the trainer of a run with its checkpoint loaded. Nothing is written but features into their store.

    root: of the datasets, where it is no longer that of the run.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the log of a run is not what the user asked for
            return _open(run, root)
    except UserError as error:
        raise UserError(f"The run in {run.folder} cannot be drawn. {error}") from error


def _open(run: RecordedRun, root: str) -> Any:
    # Here, because the library imports no trainers by itself.
    import cocoamix.datasets
    import cocoamix.trainers  # noqa: F401  (before dassl is used)

    # isort: split
    from dassl.config import get_cfg_default
    from dassl.engine import build_trainer
    from dassl.utils import set_random_seed

    from cocoamix.datasets.common.writing import keep_nothing

    cfg = recorded.configuration(run, get_cfg_default())
    if root:
        cfg.DATASET.ROOT = root
    keys.check_common(cfg)
    cfg.freeze()
    if cfg.SEED >= 0:
        set_random_seed(cfg.SEED)
    with keep_nothing():
        trainer = build_trainer(cfg)
    trainer.load_model(str(run.trained), epoch=run.epoch)
    _refuse_other_images(trainer, run.origin)
    trainer.set_model_mode("eval")
    return trainer


def _refuse_other_images(trainer: Any, origin: Mapping[str, Any]) -> None:
    """Refuse a dataset that has changed since: its images are not those that the weights were fitted to."""
    then, now = (origin.get("protocol") or {}).get("splits", {}), trainer.protocol["splits"]
    for split in ("train", "test"):
        if split in then and then[split] != now[split]:
            raise UserError(
                f"The {split} images of {trainer.cfg.DATASET.NAME} are not those of the run: other files, labels or "
                "draws of few shots. Restore them, or name their folder by --root."
            )
