"""Find finished runs of CoCoA-Mix by their folders, and open them with their training settings."""

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
_NEEDED = f"Give the output folder of a finished run of {TRAINER}."


def find_run(folder: Path) -> RecordedRun:
    """Return the run in a folder; refuse a run for which there are no curves to draw."""
    run = recorded.find_run(folder, needs_results=True)
    if run.trainer != TRAINER:
        raise UserError(f"The run in {folder} is a {run.trainer} run. {_NEEDED}")
    ensemble = flatten(run.config).get("TRAINER.COCOAMIX.ENSEMBLE", "coa")
    if ensemble != "coa":
        raise UserError(
            f"The run in {folder} has no learned weights: its TRAINER.COCOAMIX.ENSEMBLE is {ensemble}. Give the output "
            "folder of a run with ENSEMBLE coa."
        )
    if run.trained is None:
        raise UserError(recorded.no_checkpoint(folder))
    return run


def open_run(run: RecordedRun, root: str = "") -> Any:
    """Return the trainer of a run with its checkpoint loaded. Only stored features are written.

    Args:
        run: The run.
        root: The folder of the datasets, if it has moved since the run.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # hides the log of the run
            return _open(run, root)
    except UserError as error:
        raise UserError(f"The run in {run.folder} cannot be drawn. {error}") from error


def _open(run: RecordedRun, root: str) -> Any:
    # Imported here, because the library does not import trainers.
    import cocoamix.datasets
    import cocoamix.trainers  # noqa: F401  (before dassl is used)

    # isort: split
    from dassl.config import get_cfg_default
    from dassl.engine import build_trainer
    from dassl.utils import set_random_seed

    from cocoamix.datasets.common.writing import write_nothing

    cfg = recorded.configuration(run, get_cfg_default())
    if root:
        cfg.DATASET.ROOT = root
    keys.check_common(cfg)
    cfg.freeze()
    if cfg.SEED >= 0:
        set_random_seed(cfg.SEED)
    with write_nothing():
        trainer = build_trainer(cfg)
    trainer.load_model(str(run.trained), epoch=run.epoch)
    _refuse_other_images(trainer, run.origin)
    trainer.set_model_mode("eval")
    return trainer


def _refuse_other_images(trainer: Any, origin: Mapping[str, Any]) -> None:
    """Refuse a dataset that has changed since the run, because the weights were fitted to other images."""
    then, now = (origin.get("protocol") or {}).get("splits", {}), trainer.protocol["splits"]
    for split in ("train", "test"):
        if split in then and then[split] != now[split]:
            raise UserError(
                f"The {split} images of {trainer.cfg.DATASET.NAME} are not those of the run: files, labels or the "
                "few-shot draw differ. Restore them, or give their folder with --root."
            )
