"""Builds models without a trainer or a dataset: that of a finished run, from the run's folder alone, or a new one.

results.json has the configuration and names the checkpoint. The folder may come from somebody else: checkpoints and
CLIP weights are read without running code, the weights only with the recorded hash, and nothing that the folder names
is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from yacs.config import CfgNode

from cocoamix.config.settings import flatten
from cocoamix.errors import UserError, check_choice, some_of
from cocoamix.io import checkpoints
from cocoamix.model import PromptModel, Task
from cocoamix.registry import PREFIX, plain_name
from cocoamix.run.results import RESULTS, Results

_AGAIN = "Evaluate it again (--eval-only, --model-dir), or give the output folder of the training run."


@dataclass(frozen=True)
class Record:
    """What a finished run recorded.

    Attributes:
        folder: Its folder.
        trainer: The trainer's name, without our prefix.
        config: The configuration, as nested or dotted keys.
        classnames: The training classes; without training, the evaluated ones.
        trained: The folder of the training run; None without training.
        origin: The metadata of its checkpoint.
        parts: The file and the content of the checkpoint of each part, by name.
        protocol: What its results depend on.
        sessions: The number of classes after each session.
        categories: For own images, the class name of each folder, or of each class in the table.
    """

    folder: Path
    trainer: str
    config: Mapping[str, Any]
    classnames: list[str]
    trained: Path | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, tuple[Path, dict[str, Any]]] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    sessions: tuple[int, ...] = ()
    categories: Mapping[str, str] = field(default_factory=dict)


def read_record(folder: Path) -> Record:
    """Return what the run in a folder recorded; raise a UserError if there is no finished run."""
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}. Give the output folder of a finished run.")
    path = folder / RESULTS
    if not path.is_file():
        return _read_untested(folder)
    results = Results.read(path)
    if not results.config:
        raise UserError(f"{path} does not record the configuration of its run. {_AGAIN}")
    trained, epoch = _find_checkpoint(folder, results)
    sessions = tuple(session.classes for session in results.sessions or ())
    parts = _read_parts(trained, epoch) if trained is not None and not sessions else {}
    origin = _origin_of(parts)
    names = origin.get("classnames") or results.classnames
    if not names or (sessions and len(names) != sessions[-1]):
        raise UserError(f"{path} does not list the classes of its run. {_AGAIN}")
    return Record(
        folder,
        plain_name(results.trainer),
        results.config,
        [str(name) for name in names],
        trained,
        origin,
        parts,
        origin.get("protocol") or results.protocol,
        sessions,
        origin.get("categories") or results.categories or {},
    )


def _find_checkpoint(folder: Path, results: Results) -> tuple[Path | None, int | None]:
    """Return the folder of the evaluated training run, and the epoch of its checkpoint."""
    if results.checkpoint is not None:
        trained = folder / results.checkpoint.folder
        if not trained.is_dir():
            raise UserError(f"{folder / RESULTS} evaluated {trained}, which does not exist. Restore it. {_AGAIN}")
        return trained, results.checkpoint.epoch
    if not results.trained_parameters:
        return None, None
    if _folders_of_parts(folder) or (folder / "sessions").is_dir():
        return folder, results.epoch
    raise UserError(f"{folder} has no checkpoint, and its {RESULTS} names none. {_AGAIN}")


def _folders_of_parts(folder: Path) -> list[Path]:
    inside = (path for path in folder.iterdir() if path.is_dir())
    return sorted(path for path in inside if next(path.glob("model*.pth.tar*"), None))


def _read_parts(folder: Path, epoch: int | None) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Return the file and the content of each part of a training run after an epoch; by default the selected ones."""
    from cocoamix.run.checkpointer import checkpoint_path

    parts = {}
    for place in _folders_of_parts(folder):
        path = place / checkpoints.epoch_file(epoch or 0)
        path = path if path.is_file() else checkpoint_path(place, None)
        content = parts[place.name] = path, checkpoints.load(path)
        if epoch is not None and checkpoints.epochs_of(content[1]) != epoch:
            raise UserError(f"{place} has no checkpoint of epoch {epoch}, which was evaluated. {_AGAIN}")
    if not parts:
        raise UserError(f"There are no checkpoints in {folder}. {_AGAIN}")
    return parts


def _origin_of(parts: Mapping[str, tuple[Path, dict[str, Any]]]) -> dict[str, Any]:
    from cocoamix.run.origin import origin_of

    path, content = next(iter(parts.values()), (Path(), {}))
    return origin_of(content, path)


def _read_untested(folder: Path) -> Record:
    """Return the record of a training run without an evaluation (TEST.NO_TEST), from its checkpoint."""
    parts = _read_parts(folder, None) if _folders_of_parts(folder) else {}
    origin = _origin_of(parts)
    if origin.get("finished") and {"trainer", "classnames"} <= origin.keys():
        config = {**(origin.get("settings") or {}), "MODEL.BACKBONE.WEIGHTS": origin.get("weights_file", "")}
        names, facts = [str(name) for name in origin["classnames"]], origin.get("protocol") or {}
        trainer, categories = plain_name(str(origin["trainer"])), origin.get("categories") or {}
        return Record(folder, trainer, config, names, folder, origin, parts, facts, categories=categories)
    if parts or (folder / "resume.pth").is_file():
        raise UserError(f"The run in {folder} is not finished: it has no {RESULTS}. Start its command again.")
    below = some_of(sorted(str(path.parent) for path in folder.rglob(RESULTS)), 200)
    if below:
        raise UserError(f"{folder} is not a run. Name one below it: {below}.")
    raise UserError(f"There is no run in {folder}. Give the output folder of a finished run, which holds {RESULTS}.")


# ---------------------------------------------------------------------------------------- building its model


def find_trainer(name: str) -> Any:
    """Return the class of one of this project's trainers."""
    import cocoamix.trainers  # noqa: F401  (before dassl is used)

    # isort: split
    from dassl.engine import TRAINER_REGISTRY

    names = TRAINER_REGISTRY.registered_names()
    check_choice("The trainer", name, names)
    for each in (name, PREFIX + name):  # in the tree of another code base, `name` may be its trainer
        trainer = TRAINER_REGISTRY.get(each) if each in names else None
        if issubclass(getattr(trainer, "Model", type), PromptModel):
            return trainer
    raise UserError(f"{name} is a trainer of another code base, whose models cannot be opened here.")


def build_model(
    name: str, clip: Any, classnames: Sequence[str], *, dataset: str = "", seed: int = 1, **settings: Any
) -> PromptModel:
    """Return an untrained model, for one's own training loop.

    Args:
        name: Its trainer, such as CoCoAMix.
        clip: A CLIP of `cocoamix.load_clip`.
        classnames: The classes.
        dataset: Name of a dataset whose own template to use, such as EuroSAT.
        seed: Seed of the initial parameters.
        **settings: Keys of the method and their values, such as `N_CTX=4`.
    """
    from cocoamix.clip.ensemble import SeveralCLIPs
    from cocoamix.config import keys
    from cocoamix.fscil.model import SessionModel

    trainer = find_trainer(name)
    if issubclass(trainer.Model, SessionModel):
        raise UserError(f"{name} learns session by session, each from the one before: train it with train.py.")
    cfg, section = default_configuration(), f"TRAINER.{trainer.Model.section}"
    for key, value in settings.items():
        keys.merge_value(cfg, f"{section}.{key}", value)
    cfg.DATASET.NAME, cfg.MODEL.BACKBONE.NAME = dataset, clip.name
    trainer.check_cfg(cfg)
    if trainer.Model.several and not isinstance(clip, SeveralCLIPs):
        clip = SeveralCLIPs([clip])
    own, task = trainer.Model.settings_of(cfg), Task(tuple(classnames), dataset)
    model: PromptModel = trainer.Model(clip, trainer.Model.complete(task, clip, own, cfg.DATASET), own, seed)
    return model


def default_configuration() -> CfgNode:
    """Return Dassl's default configuration with our keys."""
    from dassl.config import get_cfg_default

    from cocoamix.config import keys

    cfg = get_cfg_default()
    keys.extend_cfg(cfg)
    return keys.complete(cfg)


def configuration(record: Record, weights: str = "") -> CfgNode:
    """Return the configuration of a run. `weights` is the file of the CLIP weights, if it has moved."""
    from cocoamix.config import keys

    cfg = default_configuration()
    keys.merge_recorded(cfg, record.config, str(record.folder / RESULTS))
    cfg.MODEL.BACKBONE.WEIGHTS = weights or cfg.MODEL.BACKBONE.WEIGHTS
    return cfg


def build(record: Record, weights: str) -> tuple[CfgNode, PromptModel]:
    """Return the configuration of a run and its model, with the parts of its checkpoint."""
    from cocoamix import checkpoint
    from cocoamix.config import keys
    from cocoamix.fscil.model import SessionModel
    from cocoamix.run import backbone, origin

    trainer, cfg, task, known = find_trainer(record.trainer), configuration(record, weights), Task(()), record.origin
    if record.sessions:
        if not issubclass(trainer.Model, SessionModel):
            raise UserError(f"{record.folder / RESULTS} has sessions, but {record.trainer} has none: it was altered.")
        task, known = _session_task(record, trainer.Model.main_part, cfg.DATASET.NAME)
        cfg, _ = origin.follow_training(cfg, known.get("settings") or {}, trainer.Model.section)
    trainer.check_cfg(cfg)
    settings, _ = checkpoint.settings_of_training(trainer.Model, trainer.Model.settings_of(cfg), known)
    fitted = known.get("heldout")
    if isinstance(fitted, dict) and "temperature" in fitted and settings.ENSEMBLE == "coa":
        settings.CALIBRATED = True
    keys.check_below(f"TRAINER.{trainer.Model.section}", settings)
    device = torch.device("cuda" if torch.cuda.is_available() and cfg.USE_CUDA else "cpu")
    clip = backbone.load_clips(cfg, settings, device, trainer.Model.several)
    _check_weights(record, known, clip, weights)
    if not record.sessions:
        task = Task(tuple(record.classnames), cfg.DATASET.NAME)
    task = trainer.Model.complete(task, clip, settings, cfg.DATASET)
    model: PromptModel = trainer.Model(clip, task, settings, int(known.get("seed", 0)))
    for name in () if record.sessions else model.parts:
        if name not in record.parts:
            raise UserError(f"{record.trained or record.folder} has no checkpoint of {name}. {_AGAIN}")
        path, content = record.parts[name]
        origin.check_trainer(origin.origin_of(content, path), record.trainer, path)
        checkpoint.load_part(model, name, content, path)
    model.adopt(known)
    return cfg, model.eval()


def _session_task(record: Record, main_part: str, dataset: str) -> tuple[Task, Mapping[str, Any]]:
    """Return the task of a run in sessions, and the origin of its first session."""
    from cocoamix.fscil.files import count_sessions, read_sessions
    from cocoamix.fscil.model import SessionTask

    names, starts = record.classnames, (0, *record.sessions)
    sessions = tuple(tuple(names[start:end]) for start, end in zip(starts, record.sessions, strict=False))
    learned: list[Any] = []
    known: Mapping[str, Any] = {}
    if record.trained is not None:
        expected = [{"trainer": record.trainer}] * count_sessions(str(record.trained))
        saved = read_sessions(str(record.trained), expected, main_part)
        if len(saved) < len(sessions):
            raise UserError(f"{record.trained} has {len(saved)} of the {len(sessions)} evaluated sessions. {_AGAIN}")
        learned, known = [each.models for each in saved[: len(sessions)]], saved[0].origin
    number = 0 if learned else len(sessions) - 1
    return SessionTask(sessions[number], dataset, session=number, sessions=sessions, learned=learned), known


def _check_weights(record: Record, known: Mapping[str, Any], clip: Any, weights: str) -> None:
    """Raise a UserError for CLIP weights other than those of the run. `weights` is the file that the caller named."""
    settings = flatten(record.config)
    several = [file for key, files in settings.items() if key.endswith(".BACKBONE_WEIGHTS") for file in files]
    files = [file for file in (settings.get("MODEL.BACKBONE.WEIGHTS"), *several) if file and file != "random"]
    recorded = known.get("weights_sha256") or record.protocol.get("weights_sha256")
    activation = known.get("activation", clip.activation)
    if activation != clip.activation:
        raise UserError(f"It was trained with the activation {activation}, but {clip.name} has {clip.activation} here.")
    if recorded == clip.weights_hash or (recorded is None and (weights or not files)):
        return
    then = f"weights {str(recorded)[:16]}" if recorded else "weights whose hash it does not record"
    named = weights or ", ".join(files) or "this machine's file"
    raise UserError(
        f"It used {clip.name} with {then}, but {named} holds {clip.weights_hash[:16]}. Name the right file: --weights "
        "FILE, or weights=FILE in Python."
    )
