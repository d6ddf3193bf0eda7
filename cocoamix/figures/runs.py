"""Finished runs of CoCoA-Mix, found by their folder, and opened with all that they were trained with."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.registry import plain_name
from cocoamix.run.checkpointer import RESUME, checkpoint_path
from cocoamix.run.results import RESULTS, Results

TRAINER = "CoCoAMix"
_LOG = "log.txt"  # of a run's folder
_WEIGHTS = "coa_weights"  # the model whose checkpoint has what a figure is about
_LOADED = re.compile(rf'^Loading weights to {_WEIGHTS} from "(.+)" \(epoch = ', re.M)
_NEEDED = f"Give the folder of a finished run of {TRAINER}, which holds {RESULTS}."


@dataclass(frozen=True)
class Run:
    """A finished training, or an evaluation of one.

    folder: as it was given; trained: that of the training, which has the checkpoint.
    epoch: of the checkpoint; None for the one that the training ended with.
    """

    folder: Path
    trained: Path
    epoch: int | None
    config: Mapping[str, Any]


def find_run(folder: Path) -> Run:
    """Return the run in a folder, or say why there is none that can be drawn."""
    told = _read_results(folder)
    trainer = plain_name(told.trainer)
    if trainer != TRAINER:
        raise UserError(f"The run in {folder} is one of {trainer}. {_NEEDED}")
    ensemble = flatten(told.config).get("TRAINER.COCOAMIX.ENSEMBLE", "coa")
    if ensemble != "coa":
        raise UserError(
            f"The run in {folder} has no learned weights: its TRAINER.COCOAMIX.ENSEMBLE is {ensemble}. Give the folder "
            "of a run with ENSEMBLE coa."
        )
    if (folder / _WEIGHTS).is_dir():
        return Run(folder, folder, None, told.config)
    file = _loaded_file(folder)
    number = file.name.rpartition("-")[2]
    return Run(folder, file.parent.parent, int(number) if number.isdigit() else None, told.config)


def _read_results(folder: Path) -> Results:
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}. {_NEEDED}")
    path = folder / RESULTS
    if not path.is_file():
        raise UserError(_why_not(folder))
    results = Results.read(path)
    if not results.config:
        raise UserError(f"{path} does not tell the configuration of its run, so it cannot be opened again.")
    return results


def _why_not(folder: Path) -> str:
    """Return what is wrong with a folder that has no results."""
    if (folder / RESUME).is_file() or (folder / _WEIGHTS).is_dir():
        return (
            f"The run in {folder} is not finished: it has no {RESULTS}. Start its command again, which goes on from "
            "the last whole epoch."
        )
    below = sorted(str(path.parent) for path in folder.rglob(RESULTS))
    if below:
        more = f" and {len(below) - 3} more" if len(below) > 3 else ""
        return f"{folder} is no run itself. Name one or several below it: {', '.join(below[:3])}{more}."
    return f"There is no run in {folder}. {_NEEDED}"


def _loaded_file(folder: Path) -> Path:
    """Return the checkpoint that an evaluation loaded, by its log: the results do not tell."""
    log = folder / _LOG
    found = _LOADED.findall(log.read_text(encoding="utf-8", errors="replace")) if log.is_file() else []
    if not found:
        raise UserError(
            f"{folder} has no checkpoint, and no {_LOG} that names the one it evaluated. Give the folder of the "
            "training run."
        )
    file = Path(found[-1])
    if not file.is_file():
        raise UserError(
            f"{folder} evaluated {file}, which is not there. Start where that run was started, or give the folder of "
            "the training run."
        )
    return file


# ---------------------------------------------------------------------------------------- the trainer


def open_run(run: Run, root: str = "") -> Any:
    """Return the trainer of a run with its checkpoint loaded. Nothing is written but features into their store.

    root: of the datasets, where it is no longer that of the run.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # the log of a run is not what the user asked for
            return _open(run, root)
    except UserError as error:
        raise UserError(f"The run in {run.folder} cannot be drawn. {error}") from error


def _open(run: Run, root: str) -> Any:
    # Here, because the library imports no trainers by itself.
    import cocoamix.trainers  # noqa: F401  (before dassl is used)

    # isort: split
    from dassl.engine import build_trainer
    from dassl.utils import set_random_seed

    from cocoamix.datasets.common.writing import keep_nothing

    path = checkpoint_path(run.trained / _WEIGHTS, run.epoch)
    origin = checkpoints.load(path).get("cocoamix")
    if not isinstance(origin, dict):
        raise UserError(f"{path} does not tell how it was trained, so it is no checkpoint of this project's.")
    cfg = _configuration(run, origin.get("settings") or {}, root)
    if cfg.SEED >= 0:
        set_random_seed(cfg.SEED)
    with keep_nothing():
        trainer = build_trainer(cfg)
    trainer.load_model(str(run.trained), epoch=run.epoch)
    _refuse_other_images(trainer, origin)
    trainer.set_model_mode("eval")
    return trainer


def _configuration(run: Run, settings: Mapping[str, Any], root: str) -> Any:
    """Return the configuration of the training.

    The run's own has paths; of an evaluation, the checkpoint's settings say what differed in training, such as the
    classes.
    """
    import cocoamix.datasets  # noqa: F401

    # isort: split
    from dassl.config import get_cfg_default

    from cocoamix.config import keys

    cfg = get_cfg_default()
    keys.extend_cfg(cfg)
    keys.merge_recorded(cfg, run.config, str(run.folder / RESULTS))
    keys.merge_recorded(cfg, settings, f"the checkpoint of {run.trained}")
    cfg.OUTPUT_DIR, cfg.RESUME = str(run.trained), ""  # where a run without a seed has kept the one that it drew
    cfg.MODEL.INIT_WEIGHTS = ""  # what a training started from is not needed any more
    if root:
        cfg.DATASET.ROOT = root
    keys.check_common(cfg)
    cfg.freeze()
    return cfg


def _refuse_other_images(trainer: Any, origin: Mapping[str, Any]) -> None:
    """Refuse a dataset that has changed since: its images are not those that the weights were fitted to."""
    then, now = (origin.get("protocol") or {}).get("splits", {}), trainer.protocol["splits"]
    for split in ("train", "test"):
        if split in then and then[split] != now[split]:
            raise UserError(
                f"The {split} images of {trainer.cfg.DATASET.NAME} are not those of the run: other files, labels or "
                "draws of few shots. Restore them, or name their folder by --root."
            )
