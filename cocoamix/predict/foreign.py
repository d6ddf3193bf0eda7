"""Checkpoints of CoOp's original code and its forks, which record neither their configuration nor their classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.run.checkpointer import checkpoint_path
from cocoamix.run.origin import find_tensor, nearly_equal, origin_of
from cocoamix.run.recorded import RecordedRun, model_folders

from .classifier import Classifier


def describe_run(folder: Path, trainer: str, files: Sequence[str], names: Sequence[str]) -> RecordedRun:
    """Return the run of a folder with CoOp's checkpoints.

    Args:
        folder: The output folder, which holds `prompt_learner/` or the like.
        trainer: The trainer of the checkpoints.
        files: The configuration files of the dataset and the trainer.
        names: The training classes, in the order of the labels.
    """
    import cocoamix.trainers  # noqa: F401  (before dassl is used)

    # isort: split
    from dassl.config import get_cfg_default
    from dassl.engine import TRAINER_REGISTRY

    from cocoamix.config import keys
    from cocoamix.errors import check_choice
    from cocoamix.run.protocol import plain

    if not folder.is_dir() or not model_folders(folder):
        raise UserError(f"There are no checkpoints in {folder}. Give the output folder of a training run.")
    if not names:
        raise UserError(
            "CoOp's checkpoints do not list their classes: give --classes FILE, with one per line, in the order "
            "of the labels."
        )
    check_choice("--trainer", trainer, TRAINER_REGISTRY.registered_names())
    cfg = get_cfg_default()
    keys.extend_cfg(cfg)
    for file in files:
        keys.merge_file(cfg, file)
    cfg.TRAINER.NAME = trainer
    return RecordedRun(folder, folder, None, trainer, plain(cfg), {}, {}, list(names))


def open_foreign(
    folder: Path, trainer: str, files: Sequence[str], names: Sequence[str], weights: str, store: bool
) -> Classifier:
    """Return the classifier of such a run, after checking that the classes are those of its checkpoints."""
    run = describe_run(folder, trainer, files, names)
    weights = weights or run.config["MODEL"]["BACKBONE"]["WEIGHTS"]  # of the user's own configuration file
    found = Classifier(run, weights=weights, store=store)
    for place in model_folders(folder):
        path = checkpoint_path(place, None)
        content = checkpoints.load(path)
        theirs = find_tensor(checkpoints.weights_of(content, path), "token_suffix")
        model = getattr(found.trainer, "prompt_learner", None)
        mine = find_tensor(dict(model.named_buffers()), "token_suffix") if model is not None else None
        if not origin_of(content, path) and theirs is not None and mine is not None and not nearly_equal(theirs, mine):
            raise UserError(
                f"The {len(names)} names of --classes are not the classes that {path} was trained on ({len(theirs)} "
                "classes), or they are in another order."
            )
    return found
