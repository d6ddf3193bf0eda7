"""One evaluation of one model, read from its results.json or its log."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cocoamix.config import roles
from cocoamix.config.partition import LABEL
from cocoamix.config.settings import flatten
from cocoamix.errors import brief, printable
from cocoamix.run.results import RESULTS, Results

from .logs import Log, canonical
from .names import dataset_name, is_zero_shot, own_dataset_name, simplify
from .paths import Place, read_path

_LONGEST_NAME = 100  # characters; a name becomes a label in tables and part of file names


@dataclass
class Record:
    """An evaluation. What it does not state is None or empty."""

    folder: str  # as the user would type it
    above: int  # index of the folder below which it was read
    trainer: str
    config: str  # name of the configuration
    variant: str
    task: str  # base2new, transfer, few-shot, fscil
    dataset: str
    subset: str  # base, new, all
    shots: int | None
    seed: int | None
    metrics: dict[str, float]
    sessions: tuple[dict[str, float], ...] = ()  # metrics after each session of class-incremental learning
    complete: bool = True  # whether all sessions were evaluated
    draw: str = LABEL  # how the classes are divided into base and new
    source: str = ""  # the training dataset of a transferred model
    parameters: int | None = None  # number of trained ones
    images: int | None = None  # number of evaluated ones
    epoch: int | None = None  # epochs of training of the evaluated model, if it was the last of its run
    title: str = ""  # the run's own name for its method
    prompts: tuple[tuple[str, str], ...] = ()  # trainer and configuration of the runs whose prompts it builds on
    protocol: dict[str, Any] = field(default_factory=dict)  # dotted keys
    settings: dict[str, Any] = field(default_factory=dict)  # dotted keys
    fingerprint: str = ""
    caveats: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    rest: tuple[str, ...] = ()  # folders above, of unknown meaning
    written: float = 0.0
    origin: str = RESULTS
    only_evaluates: bool = False  # a log that does not repeat what only training reads
    method: str = ""  # its label in tables; see labels.py

    @property
    def accuracy(self) -> float:
        """The accuracy in percent."""
        return self.metrics["accuracy"]

    def validate(self) -> None:
        """Raise ValueError for values that no run writes: such a file is damaged, and its numbers mean nothing."""
        for what, name in (("trainer", self.trainer), ("dataset", self.dataset), ("subset", self.subset)):
            if not name or len(name) > _LONGEST_NAME or printable(name) != name:
                raise ValueError(f"its {what} is {brief(name)}, which is not a valid name")
        for name in (self.title, self.fingerprint, *self.metrics):
            if len(name) > _LONGEST_NAME or printable(name) != name:
                raise ValueError(f"it has {brief(name)}, which is not a valid name")
        for key, value in {**self.protocol, **self.settings}.items():
            if printable(key) != key or not _is_sound(value):
                raise ValueError(f"its {brief(key)} is {brief(value)}, which is not a valid value")
        for number in (self.seed, self.shots, self.epoch, self.parameters, self.images):
            if number is not None and not 0 <= number < 2**63:
                raise ValueError(f"it has the number {brief(number)}, which no run has")
        if "accuracy" not in self.metrics:
            raise ValueError("it has no 'accuracy'")
        for accuracy in (self.accuracy, *(session["accuracy"] for session in self.sessions)):
            if not 0 <= accuracy <= 100:
                raise ValueError(f"its accuracy is {accuracy}, which is not between 0 and 100")


def _is_sound(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_sound, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or not any("\ud800" <= letter <= "\udfff" for letter in value)


# ---------------------------------------------------------------------------------------- results.json


def from_results(folder: Path, place: Place, above: int) -> Record:
    """Read the results.json of a run; ResultsError or ValueError if it cannot be used."""
    results = Results.read(folder / RESULTS)
    protocol, config = _dotted(results.protocol), _dotted(results.config)
    protocol["unreadable_images"] = float(results.unreadable_images or 0)  # the accuracy is over fewer images
    sessions = tuple(
        {key: getattr(session, key) for key in ("accuracy", "base", "novel") if getattr(session, key) is not None}
        for session in results.sessions or ()
    )
    metrics = dict(results.metrics)
    if sessions:
        metrics.setdefault("accuracy", sessions[-1]["accuracy"])
    record = Record(
        folder=str(folder),
        above=above,
        trainer=results.trainer,
        config=place.config,
        variant=place.variant,
        task="fscil" if sessions else place.task,
        dataset=own_dataset_name(results.dataset, config) or dataset_name(results.dataset),
        subset=results.subset or place.subset or "all",
        shots=results.shots if results.shots is not None and results.shots > 0 else place.shots,
        # A run without a seed (-1) gets that of its folder.
        seed=results.seed if results.seed is not None and results.seed >= 0 else place.seed,
        metrics=metrics,
        sessions=sessions,
        complete=results.complete,
        draw=str(protocol.pop("partition", LABEL)),
        parameters=results.trained_parameters,
        images=results.evaluated_images,
        epoch=_last_epoch(_fixed_epochs(results), protocol),
        title=results.method or "",
        prompts=_prompts(config.get("TRAINER.ENLEARN.PROMPTS")),
        protocol=protocol,
        settings=_own_settings(config, results.trainer),
        fingerprint=results.fingerprint,
        caveats=tuple(getattr(results, "caveats", None) or ()),
        versions=dict(results.versions),
        rest=place.rest,
        written=(folder / RESULTS).stat().st_mtime,
    )
    record.validate()
    return record


def _dotted(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: canonical(value) for key, value in flatten(node).items()}


def _own_settings(config: Mapping[str, Any], trainer: str) -> dict[str, Any]:
    """Return the settings that the seeds of a row must share, without those of other trainers."""
    name = simplify(trainer)
    sections = {key.split(".")[1] for key in config if key.startswith("TRAINER.") and key.count(".") > 1}
    others = sections - ({section for section in sections if simplify(section) in name} or sections)
    foreign = tuple(f"TRAINER.{section}." for section in others)
    return {key: value for key, value in config.items() if not key.startswith(foreign) and roles.compared_in_cell(key)}


def _prompts(folders: Any) -> tuple[tuple[str, str], ...]:
    """Return trainer and configuration of the runs in some folders. The folders vary with seed and dataset."""
    places = [read_path(Path(str(folder)).parts) for folder in (folders if isinstance(folders, tuple) else ())]
    return tuple((place.trainer, place.config) for place in places)


def _fixed_epochs(results: Results) -> int | None:
    """Return the epochs of a model, without those of a second stage that ran until convergence: they vary by seed."""
    epoch, stage = results.epoch, results.second_stage
    return epoch if epoch is None or stage is None or stage.ended == "length" else epoch - stage.epochs


def _last_epoch(epoch: Any, protocol: Mapping[str, Any]) -> int | None:
    """Return the epochs of a model; None if it was selected on validation images, because its epoch varies by seed."""
    return None if protocol.get("model_selection") == "best_val" or not isinstance(epoch, (int, float)) else int(epoch)


# ---------------------------------------------------------------------------------------- logs


def from_log(folder: Path, path: Path, log: Log, place: Place, above: int) -> Record:
    """Return the record of a log with results; ValueError if it cannot be used."""
    config, arguments = log.config, log.arguments
    trainer = str(config.get("TRAINER.NAME") or arguments.get("trainer") or place.trainer)
    dataset = str(config.get("DATASET.NAME") or _stem(arguments.get("dataset_config_file", "")) or place.dataset)
    if not trainer or not dataset:
        raise ValueError(f"neither the path nor {path.name} names the {'dataset' if trainer else 'trainer'}")
    if config.get("TRAINER.MODAL") == "base2novel":
        raise ValueError("it evaluates base and new classes in one log, as PromptKD does, which is not supported")
    shots, seed = config.get("DATASET.NUM_SHOTS"), arguments.get("seed", "")
    protocol = _protocol_of_log(config, trainer)
    loaded = arguments.get("load_epoch", "")
    epochs = (int(loaded) if loaded.isdigit() else None) if log.evaluates_only else config.get("OPTIM.MAX_EPOCH")
    record = Record(
        folder=str(folder),
        above=above,
        trainer=trainer,
        config=place.config,
        variant=place.variant,
        task=place.task,
        dataset=own_dataset_name(dataset, config) or dataset_name(dataset),
        subset=str(config.get("DATASET.SUBSAMPLE_CLASSES") or place.subset or "all"),
        shots=int(shots) if isinstance(shots, float) and shots > 0 else place.shots,
        seed=place.seed if place.seed is not None else int(seed) if seed.isdigit() else None,
        metrics=log.metrics,
        images=int(log.metrics["total"]) if math.isfinite(log.metrics.get("total", math.nan)) else None,
        epoch=_last_epoch(epochs, protocol),
        protocol=protocol,
        settings=_own_settings(config, trainer),
        rest=place.rest,
        written=path.stat().st_mtime,
        origin=path.name,
        only_evaluates=log.evaluates_only,
    )
    record.validate()
    return record


def _protocol_of_log(config: Mapping[str, Any], trainer: str) -> dict[str, Any]:
    """Return the protocol in a printed configuration, under the keys of our own results."""
    protocol = {f"transforms.{key[6:]}": value for key, value in config.items() if key.startswith("INPUT.")}
    keys = {"backbone": "MODEL.BACKBONE.NAME", "evaluated_on": "TEST.SPLIT", "model_selection": "TEST.FINAL_MODEL"}
    protocol |= {name: config[key] for name, key in keys.items() if key in config}
    for key, value in config.items():  # KgCoOp's is TRAINER.COOP.PREC
        section = re.fullmatch(r"TRAINER\.(\w+)\.PREC", key)
        if section and simplify(section[1]) in simplify(trainer):
            protocol["precision"] = value
    return protocol


def complete(record: Record, arguments: Mapping[str, str]) -> None:
    """Add what only the command line of a run states: its configuration, and where a transferred model comes from."""
    record.config = record.config or _stem(arguments.get("config_file", ""))
    loaded = arguments.get("model_dir", "")
    if loaded and record.subset == "all":
        trained = read_path(Path(loaded).parts)
        if trained.dataset and dataset_name(trained.dataset) != record.dataset and trained.task != "base2new":
            record.source, record.shots = dataset_name(trained.dataset), trained.shots or record.shots


def inherit_training(records: Sequence[Record]) -> None:
    """Give evaluations, whose logs need not repeat what only training reads, these settings of their training."""

    def model(record: Record) -> tuple[Any, ...]:
        return (record.trainer, record.config, record.variant, record.seed, record.rest)

    trainings: dict[tuple[Any, ...], Record] = {}
    for record in records:
        if record.origin != RESULTS and not record.only_evaluates:
            trainings[model(record)] = trainings[(*model(record), record.dataset)] = record
    for record in records if trainings else ():
        training = trainings.get((*model(record), record.dataset), trainings.get(model(record)))
        if record.only_evaluates and training is not None:
            record.settings |= {
                key: value for key, value in training.settings.items() if not roles.compared_in_model(key)
            }


def _stem(path: str) -> str:
    return Path(path.strip()).stem if path.strip() else ""


# ---------------------------------------------------------------------------------------- zero-shot

_TRAINING_SETTINGS = ("OPTIM.", "TRAIN.", "LOSS.", "DATALOADER.TRAIN_X.", "DATALOADER.TRAIN_U.", "DATASET.FEWER_SHOTS")
_TRAINING_FACTS = re.compile(
    r"shots|splits\.(train|folds)|model_selection|views|staged_lr.*"
    # Dassl's augmentations of training images.
    r"|transforms\.(CROP_PADDING|RRCROP_|CUTOUT_|GN_|RANDAUGMENT_|COLORJITTER_|RGS_|GB_).*"
)
_TRANSFORMS, _AT_TEST = "transforms.TRANSFORMS", ("normalize", "instance_norm")


def drop_training(record: Record) -> None:
    """Drop from a zero-shot record what only training reads; its result cannot depend on it."""
    if not is_zero_shot(record.trainer):
        return
    record.shots = None
    record.settings = {key: v for key, v in record.settings.items() if not key.startswith(_TRAINING_SETTINGS)}
    record.protocol = {key: v for key, v in record.protocol.items() if not _TRAINING_FACTS.fullmatch(key)}
    transforms = record.protocol.get(_TRANSFORMS)
    if isinstance(transforms, tuple):
        record.protocol[_TRANSFORMS] = tuple(name for name in _AT_TEST if name in transforms)
