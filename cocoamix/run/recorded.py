"""Finds a finished run in a folder: its trainer, its classes and its checkpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from yacs.config import CfgNode

from cocoamix.config import keys
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.registry import plain_name

from .checkpointer import RESUME, checkpoint_path
from .origin import origin_of
from .results import RESULTS, Results

NEEDED = f"Give the output folder of a finished run, which holds {RESULTS}."
SESSIONS = "sessions"
_LOG = "log.txt"
_LOADED = re.compile(r'^Loading weights to (\S+) from "(.+)" \(epoch = ', re.M)
_LOADED_SESSIONS = re.compile(r"^Loaded sessions 0 to \d+ from (.+)$", re.M)


@dataclass(frozen=True)
class RecordedRun:
    """A finished training run, or an evaluation of one.

    Attributes:
        folder: The folder as it was given.
        trained: The folder with the checkpoints; None without training.
        epoch: Epoch of the checkpoint; None for the last one.
        trainer: The trainer's name, without our prefix.
        config: The configuration, as nested or dotted keys.
        protocol: What its results depend on.
        origin: The metadata of the checkpoint.
        classnames: The training classes; without training, the evaluated ones. Empty if the checkpoint does not
            record them.
        sessions: The number of classes of each session.
        categories: For own images, the class name of each folder, or of each class in the table. Empty if the run
            does not record them.
    """

    folder: Path
    trained: Path | None
    epoch: int | None
    trainer: str
    config: Mapping[str, Any]
    protocol: Mapping[str, Any]
    origin: Mapping[str, Any]
    classnames: list[str]
    sessions: tuple[int, ...] = ()
    categories: Mapping[str, str] = field(default_factory=dict)


def find_run(folder: Path, needs_results: bool = False) -> RecordedRun:
    """Return the run in a folder.

    Args:
        folder: The folder.
        needs_results: Whether to refuse a training run without an evaluation (TEST.NO_TEST).

    Raises:
        UserError: There is no usable run in the folder.
    """
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}. {NEEDED}")
    results = _read_results(folder)
    if results is None and needs_results:
        raise UserError(_why_not(folder))
    if results is not None and results.sessions is not None:
        return _find_sessions(folder, results)
    trained, epoch = _find_checkpoints(folder)
    if trained is None and results is not None and results.trained_parameters:
        raise UserError(no_checkpoint(folder))
    if trained == folder and results is not None and results.epoch:
        epoch = _evaluated_epoch(folder, results.epoch)
    origin: Mapping[str, Any] = {}
    if trained is not None:
        path = checkpoint_path(model_folders(trained)[0], epoch)
        origin = origin_of(checkpoints.load(path), path)
        if not origin:
            raise UserError(f"{path} does not record how it was trained, so it is not a checkpoint of this project.")
    if results is None:
        return _find_untested(folder, origin)
    names = origin.get("classnames") or results.classnames or ()
    trainer, protocol = plain_name(results.trainer), origin.get("protocol") or results.protocol
    return RecordedRun(
        folder,
        trained,
        epoch,
        trainer,
        results.config,
        protocol,
        origin,
        list(names),
        categories=_categories(origin, results),
    )


def _find_untested(folder: Path, origin: Mapping[str, Any]) -> RecordedRun:
    """Return a training run without an evaluation (TEST.NO_TEST), from the metadata of its checkpoint."""
    if not origin.get("finished"):
        raise UserError(_why_not(folder))
    config = {**(origin.get("settings") or {}), "MODEL.BACKBONE.WEIGHTS": origin.get("weights_file", "")}
    trainer = plain_name(str(origin["trainer"]))
    return RecordedRun(
        folder,
        folder,
        None,
        trainer,
        config,
        origin.get("protocol") or {},
        origin,
        origin["classnames"],
        categories=_categories(origin),
    )


def _categories(origin: Mapping[str, Any], results: Results | None = None) -> dict[str, str]:
    """Return the class names by folder, those of the training run first."""
    found = origin.get("categories") or (results.categories if results else None) or {}
    return {str(one): str(name) for one, name in found.items()}


def no_checkpoint(folder: Path) -> str:
    """Return the message for results of a trained model without a checkpoint."""
    lacks = f"{folder} has no checkpoint, and no {_LOG} that names the one it evaluated."
    return f"{lacks} Give the output folder of the training run."


def model_folders(folder: Path) -> list[Path]:
    """Return the folders of a run that have checkpoints in CoOp's layout."""
    found = (one for one in folder.iterdir() if one.is_dir() and next(one.glob("model*.pth.tar*"), None))
    return sorted(found)


def _read_results(folder: Path) -> Results | None:
    path = folder / RESULTS
    if not path.is_file():
        return None
    results = Results.read(path)
    if not results.config:
        raise UserError(f"{path} does not record the configuration of its run, so it cannot be opened again.")
    return results


def _why_not(folder: Path) -> str:
    """Return why a folder has no usable run."""
    if (folder / RESUME).is_file() or model_folders(folder):
        return (
            f"The run in {folder} is not finished: it has no {RESULTS}. Start its command again, which resumes from "
            "the last complete epoch."
        )
    below = sorted(str(path.parent) for path in folder.rglob(RESULTS))
    if below:
        more = f" and {len(below) - 3} more" if len(below) > 3 else ""
        return f"{folder} is not a run. Name one or more below it: {', '.join(below[:3])}{more}."
    return f"There is no run in {folder}. {NEEDED}"


def _find_checkpoints(folder: Path) -> tuple[Path | None, int | None]:
    """Return the folder with the checkpoints of a run and the epoch of the one that was evaluated."""
    if model_folders(folder):
        return folder, None
    found = _LOADED.findall(_read_log(folder))
    if not found:
        return None, None
    file = Path(found[-1][1])
    if not file.is_file():
        raise UserError(
            f"{folder} evaluated {file}, which does not exist. Start where that run was started, or give the output "
            "folder of the training run."
        )
    number = file.name.rpartition("-")[2]
    return file.parent.parent, int(number) if number.isdigit() else None


def _evaluated_epoch(folder: Path, epoch: int) -> int | None:
    """Return the epoch of the evaluated checkpoint, if it is not the one that is loaded by default."""
    first = model_folders(folder)[0]
    same = checkpoints.epochs_of(checkpoints.load(checkpoint_path(first, None))) == epoch
    return epoch if not same and (first / checkpoints.epoch_file(epoch)).is_file() else None


def _read_log(folder: Path) -> str:
    log = folder / _LOG
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def _find_sessions(folder: Path, results: Results) -> RecordedRun:
    seen = [0, *(session.classes for session in results.sessions or ())]
    sizes = tuple(now - before for before, now in pairwise(seen))
    trained: Path | None = folder
    if not (folder / SESSIONS).is_dir():
        loaded = _LOADED_SESSIONS.findall(_read_log(folder))
        trained = Path(loaded[-1]) if loaded else None
    if trained is None and results.trained_parameters:
        raise UserError(
            f"{folder} has no sessions/, and no {_LOG} that names the run it evaluated. Give that run's output folder."
        )
    origins: list[Mapping[str, Any]] = []
    if trained is not None:
        files = [trained / SESSIONS / f"session-{number}.pth" for number in range(len(sizes))]
        origins = [origin_of(checkpoints.load(path), path) for path in files]
    # A method whose loss covers classes of other sessions names them in each session.
    places = zip(origins, pairwise(seen), strict=False)
    names = [name for one, (first, end) in places for name in _own_names(one["classnames"], first, end)]
    names = names or list(results.classnames or ())
    if len(names) != seen[-1]:
        raise UserError(f"{folder} does not name the {seen[-1]} classes of its sessions. Evaluate it again.")
    origin = origins[0] if origins else {}
    trainer, protocol = plain_name(results.trainer), origin.get("protocol") or results.protocol
    categories = _categories(origin, results)
    return RecordedRun(folder, trained, None, trainer, results.config, protocol, origin, names, sizes, categories)


def _own_names(names: Sequence[str], first: int, end: int) -> Sequence[str]:
    """Return the classes of a session, with the labels `first` to `end`, from all its names."""
    return names if len(names) == end - first else names[first:end]


def configuration(run: RecordedRun, default: CfgNode) -> CfgNode:
    """Return the configuration of the training run, not frozen.

    Paths come from the run; the settings in the checkpoint override what an evaluation changed.

    Args:
        run: The run.
        default: Dassl's default configuration, which is modified.
    """
    cfg = default
    keys.extend_cfg(cfg)
    keys.merge_recorded(cfg, run.config, str(run.folder / RESULTS))
    keys.merge_recorded(cfg, run.origin.get("settings") or {}, f"the checkpoint of {run.trained}")
    cfg.OUTPUT_DIR, cfg.RESUME = str(run.trained or run.folder), ""  # where a run without a seed has stored its seed
    cfg.MODEL.INIT_WEIGHTS = ""  # the initial weights are no longer needed
    return cfg
