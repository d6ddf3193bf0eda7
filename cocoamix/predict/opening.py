"""Opens the trainer of a finished run without its data: checkpoint, backbone, prompts and preprocessing."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from typing import Any

from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.run.given import classes_alone, given
from cocoamix.run.recorded import RecordedRun, configuration


def open_trainer(run: RecordedRun, names: Sequence[str] = (), weights: str = "", store: bool = True) -> Any:
    """Return the trainer of a run, ready for inference.

    Args:
        run: The run to open.
        names: The label space, if not the classes of the run.
        weights: File of the CLIP weights, if it has moved since the run.
        store: Whether to use the feature store.
    """
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # hides the log of the trainer
            return _open(run, names, weights, store)
    except UserError as error:
        raise UserError(f"The run in {run.folder} cannot be used. {error}") from error


def _open(run: RecordedRun, names: Sequence[str], weights: str, store: bool) -> Any:
    # Here, because importing the library must not import the trainers.
    import cocoamix.trainers  # noqa: F401  (before dassl is used)

    # isort: split
    from dassl.config import get_cfg_default
    from dassl.engine import build_trainer

    cfg = configuration(run, get_cfg_default())
    if weights:
        cfg.MODEL.BACKBONE.WEIGHTS = weights
    cfg.DATASET.BAD_IMAGES = "skip"  # the caller reports unreadable images
    cfg.TEST.FINAL_MODEL = "last_step"  # the checkpoint is known
    # Nothing is written where results.json says, because the folder of a run may come from somebody else.
    cfg.CACHE.MODE, cfg.CACHE.DIR = "test" if store else "off", ""
    cfg.DATALOADER.NUM_WORKERS = min(cfg.DATALOADER.NUM_WORKERS, os.cpu_count() or 1)
    cfg.DATALOADER.TRAIN_X.SAMPLER, cfg.DATALOADER.TRAIN_X.BATCH_SIZE = "RandomSampler", 1  # nothing is trained
    if has_temperature(run):
        cfg.TRAINER.COCOAMIX.CALIBRATED = True
    cfg.freeze()
    if run.sessions:
        data = classes_alone(run.classnames, run.sessions, names)
    else:
        data = classes_alone(names or run.classnames)
    with given(data):
        trainer = build_trainer(cfg)
    _check_backbone(run, trainer.clip, weights)
    if run.trained is not None:
        trainer.load_model(str(run.trained), epoch=run.epoch)
        if not run.origin:  # the checkpoint does not list its training classes
            trainer.trained_classes = list(run.classnames)
    elif run.sessions:
        trainer.load_model("")
    return trainer


def _check_backbone(run: RecordedRun, clip: Any, weights: str) -> None:
    """Refuse CLIP weights other than those of the run. `weights` is the file that the caller named, if any."""
    recorded = run.protocol.get("weights_sha256")
    if recorded == clip.weights_hash or (recorded is None and (weights or not _weights_files(run))):
        return
    then = f"weights {str(recorded)[:16]}" if recorded else "weights whose hash it does not record"
    named = weights or ", ".join(_weights_files(run)) or "this machine's file"
    raise UserError(
        f"It used {clip.name} with {then}, but {named} holds {clip.weights_hash[:16]}. "
        "Name the right file: --weights FILE, or weights=FILE in Python."
    )


def _weights_files(run: RecordedRun) -> list[str]:
    """Return the files of CLIP weights that a run names."""
    settings = flatten(run.config)
    several = [file for key, files in settings.items() if key.endswith(".BACKBONE_WEIGHTS") for file in files]
    return [file for file in (settings.get("MODEL.BACKBONE.WEIGHTS"), *several) if file and file != "random"]


def has_temperature(run: RecordedRun) -> bool:
    """Return whether the run fitted a temperature to held-out images for its mixture."""
    fitted = run.origin.get("heldout")
    return isinstance(fitted, dict) and "temperature" in fitted and _mixes(run)


def _mixes(run: RecordedRun) -> bool:
    return flatten(run.config).get("TRAINER.COCOAMIX.ENSEMBLE", "coa") == "coa"
