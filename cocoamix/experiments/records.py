"""One record per run: a row of the frame, from its results.json or its log, and its path."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cocoamix.config import roles
from cocoamix.config.partition import LABEL
from cocoamix.config.settings import flatten
from cocoamix.errors import brief, encodable, printable
from cocoamix.run.results import RESULTS, Results

from .logs import Log, canonical, list_logs, read_log
from .names import dataset_name, is_zero_shot, own_dataset_name, simplify
from .paths import read_path

Record = dict[str, Any]

NUMBERS = ("shots", "seed", "epoch", "parameters", "images")  # columns of integers that some runs do not state
_LONGEST_NAME = 100  # characters; a name becomes a label in tables and part of file names
# Settings and facts of the protocol that only training reads, on which zero-shot results cannot depend.
_OF_TRAINING = re.compile(
    r"(OPTIM|TRAIN|LOSS|DATALOADER\.TRAIN_[XU])\..*|DATASET\.FEWER_SHOTS"
    r"|shots|splits\.(train|folds)|model_selection|views|staged_lr.*"
    r"|transforms\.(CROP_PADDING|RRCROP_|CUTOUT_|GN_|RANDAUGMENT_|COLORJITTER_|RGS_|GB_).*"
)
_AT_TEST = ("normalize", "instance_norm")  # transforms


class UnfinishedError(ValueError):
    """A run without a result."""


def read_run(folder: Path, files: list[str], path: str) -> Record | None:
    """Return the record of the run in a folder; None if it holds no run.

    Args:
        folder: Its folder, as the user would type it.
        files: The names of its files.
        path: Its absolute path.

    Raises:
        UnfinishedError: If it has no result.
        UserError, OSError, ValueError: If its files cannot be used.
    """
    place, logs = read_path(path), list_logs(folder, files)
    if RESULTS in files:
        # Only the command line names what a path does not.
        arguments = read_log(logs[-1]).arguments if logs and not (place["task"] and place["config"]) else {}
        return _record(Results.read(folder / RESULTS), folder / RESULTS, place, arguments)
    unfinished: list[str] = []
    for file in reversed(logs):  # the newest that has a result
        log = read_log(file)
        if not log.unfinished:
            record = _record(_results_of(log, place), file, place, log.arguments)
            record["notes"] += [f"{folder}: {reason}; {file.name} is used instead." for reason in unfinished[:1]]
            return record
        unfinished.append(f"{file.name}: {log.unfinished}")
    if unfinished:
        raise UnfinishedError(unfinished[0])
    return None


def _results_of(log: Log, place: Record) -> Results:
    """Return the results in a log; what it does not state is from its path."""
    config, arguments = log.config, log.arguments
    if config.get("TRAINER.MODAL") == "base2novel":
        raise ValueError("it evaluates base and new classes in one log, as PromptKD does, which is not supported")
    trainer = str(config.get("TRAINER.NAME") or arguments.get("trainer") or place["trainer"])
    keys = {"backbone": "MODEL.BACKBONE.NAME", "evaluated_on": "TEST.SPLIT", "model_selection": "TEST.FINAL_MODEL"}
    protocol = {fact: config[key] for fact, key in keys.items() if key in config}
    protocol |= {f"transforms.{key[6:]}": value for key, value in config.items() if key.startswith("INPUT.")}
    for key in (key for key in config if key.endswith(".PREC")):  # KgCoOp's is TRAINER.COOP.PREC
        if simplify(key.split(".")[-2]) in simplify(trainer):
            protocol["precision"] = config[key]
    return Results(
        trainer=trainer,
        dataset=str(config.get("DATASET.NAME") or _stem(arguments.get("dataset_config_file")) or place["dataset"]),
        subset=str(config.get("DATASET.SUBSAMPLE_CLASSES") or ""),
        shots=_count(config.get("DATASET.NUM_SHOTS")),
        seed=place["seed"] if place["seed"] is not None else _count(arguments.get("seed")),
        metrics=log.metrics,
        evaluated_images=_count(log.metrics.get("total")),
        epoch=_count(arguments.get("load_epoch") if log.evaluates_only else config.get("OPTIM.MAX_EPOCH")),
        protocol=protocol,
        config=config,
    )


def _record(results: Results, file: Path, place: Record, arguments: Mapping[str, Any]) -> Record:
    """Return the record of a run from its results, its path and its command line."""
    protocol, config = _dotted(results.protocol), _dotted(results.config)
    protocol |= {"unreadable_images": results.unreadable_images or 0} if file.name == RESULTS else {}
    sessions = [
        {name: value for name in ("accuracy", "base", "novel") if (value := getattr(session, name)) is not None}
        for session in results.sessions or ()
    ]
    metrics = {**({"accuracy": sessions[-1]["accuracy"]} if sessions else {}), **results.metrics}
    stage, prompts = results.second_stage, config.get("TRAINER.ENLEARN.PROMPTS")
    # A second stage that ran until convergence has other epochs for each seed.
    varying = stage.epochs if stage is not None and stage.ended != "length" else 0
    makers = [read_path(str(folder)) for folder in (prompts if isinstance(prompts, tuple) else ())]
    record = {
        "folder": printable(str(file.parent)),  # as the user would type it
        "trainer": results.trainer,
        "config": printable(place["config"] or _stem(arguments.get("config_file"))),  # its name
        "variant": printable(place["variant"]),  # whatever else in the path distinguishes the run
        "rest": place["rest"],  # folders above, of unknown meaning
        "task": place["task"] or "few-shot",  # or base2new, transfer, fscil
        "source": "",  # the training dataset of a transferred model
        "dataset": own_dataset_name(results.dataset, config) or dataset_name(results.dataset),
        "subset": results.subset or place["subset"] or "all",  # or base, new
        "draw": str(protocol.pop("partition", LABEL)),  # how the classes are divided into base and new
        "shots": results.shots if (results.shots or 0) > 0 else place["shots"],
        "seed": results.seed if results.seed is not None and results.seed >= 0 else place["seed"],
        "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
        "sessions": tuple(sessions),  # metrics after each session of class-incremental learning
        "complete": results.complete,  # whether all sessions were evaluated
        "parameters": results.trained_parameters,
        "images": results.evaluated_images,
        "epoch": None if results.epoch is None else results.epoch - varying,  # of the evaluated model
        "title": results.method or "",  # the run's own name for its method
        "prompts": tuple((maker["trainer"], maker["config"]) for maker in makers),  # of the runs that it builds on
        "protocol": protocol,
        "settings": _own_settings(config, results.trainer),
        "fingerprint": results.fingerprint,
        "caveats": tuple(results.caveats or ()),
        "versions": dict(results.versions),
        "written": file.stat().st_mtime,
        "origin": file.name,
        "only_evaluates": file.name != RESULTS and arguments.get("eval_only") is True,  # lacks what only training reads
    }
    _find_task(record, arguments)
    _drop_training(record)
    _validate(record)
    notes = [f"{name} is not finite and is left out" for name in metrics.keys() - record["metrics"].keys()]
    skipped = results.unreadable_images
    notes += [f"{skipped:,} images could not be read and were left out of it"] if skipped else []
    return record | {
        "accuracy": record["metrics"]["accuracy"],
        "notes": [f"{record['folder']}: {note}." for note in notes],
    }


def _find_task(record: Record, arguments: Mapping[str, Any]) -> None:
    """Correct the task of a path. The command line may state where a transferred model comes from."""
    loaded = read_path(str(arguments.get("model_dir") or ""))
    source = dataset_name(loaded["dataset"])
    if record["sessions"]:
        record["task"] = "fscil"
    elif record["subset"] in ("base", "new"):
        record["task"] = "base2new"
    elif source not in ("", record["dataset"]) and loaded["task"] != "base2new":
        record |= {"task": "transfer", "source": source, "shots": loaded["shots"] or record["shots"]}


def _drop_training(record: Record) -> None:
    """Drop what the result of a run cannot depend on, or what varies by seed."""
    protocol = record["protocol"]
    if protocol.get("model_selection") == "best_val":
        record["epoch"] = None
    if is_zero_shot(record["trainer"]):
        record["shots"] = None
        for name in ("protocol", "settings"):
            record[name] = {key: value for key, value in record[name].items() if not _OF_TRAINING.fullmatch(key)}
        transforms = protocol.get("transforms.TRANSFORMS")
        if isinstance(transforms, tuple):
            record["protocol"]["transforms.TRANSFORMS"] = tuple(name for name in _AT_TEST if name in transforms)


def _validate(record: Record) -> None:
    """Raise ValueError for values that no run writes: such a file is damaged, and its numbers mean nothing."""
    required = {key: record[key] for key in ("trainer", "dataset", "subset")}
    others = {name: name for name in (record["title"], record["fingerprint"], *record["metrics"]) if name}
    for what, name in {**others, **required}.items():
        if not 0 < len(name) <= _LONGEST_NAME or printable(name) != name:
            raise ValueError(f"its {brief(what)} is {brief(name)}, which is not a valid name")
    for key, value in {**record["protocol"], **record["settings"]}.items():
        if printable(key) != key or not _is_sound(value):
            raise ValueError(f"its {brief(key)} is {brief(value)}, which is not a valid value")
    for key in NUMBERS:
        if not 0 <= (record[key] or 0) < 2**63:
            raise ValueError(f"its {key} is {brief(record[key])}, which is not a valid number")
    for metrics in (record["metrics"], *record["sessions"]):
        if not 0 <= metrics.get("accuracy", -1) <= 100:
            raise ValueError(f"its accuracy is {metrics.get('accuracy')}, which is not between 0 and 100")


def _is_sound(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_sound, value))
    if isinstance(value, (int, float)):
        return -1e300 < value < 1e300  # false for nan
    return not isinstance(value, str) or encodable(value) == value


def _dotted(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: canonical(value) for key, value in flatten(node).items()}


def _own_settings(config: Mapping[str, Any], trainer: str) -> dict[str, Any]:
    """Return the settings that the seeds of a row must share, without those of other trainers."""
    sections = {key.split(".")[1] for key in config if key.startswith("TRAINER.") and key.count(".") > 1}
    own = {section for section in sections if simplify(section) in simplify(trainer)}
    foreign = tuple(f"TRAINER.{section}." for section in (sections - own if own else ()))
    return {key: value for key, value in config.items() if not key.startswith(foreign) and roles.compared_in_cell(key)}


def _count(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and 0 <= value < math.inf else None


def _stem(path: Any) -> str:
    return Path(str(path or "").strip()).stem


def inherit_training(records: Sequence[Record]) -> None:
    """Give evaluations, whose logs need not repeat what only training reads, these settings of their training."""

    def model(record: Record, *more: str) -> tuple[Any, ...]:
        return tuple(record[key] for key in ("trainer", "config", "variant", "seed", "rest", *more))

    trainings: dict[tuple[Any, ...], Record] = {}
    for record in records:
        if record["origin"] != RESULTS and not record["only_evaluates"]:
            trainings[model(record)] = trainings[model(record, "dataset")] = record
    for record in records:
        training = trainings.get(model(record, "dataset"), trainings.get(model(record)))
        if record["only_evaluates"] and training is not None:
            settings = training["settings"].items()
            record["settings"] |= {key: value for key, value in settings if not roles.compared_in_model(key)}


def facts_of(record: Record) -> dict[str, Any]:
    """Return what must agree among runs that are averaged: protocol, settings and epochs."""
    if is_zero_shot(record["trainer"]):
        return {**record["protocol"], **record["settings"]}
    # If a log prints no configuration, its name stands for it.
    settings = record["settings"] or {"config": record["config"]}
    return {**record["protocol"], **settings, **({} if record["epoch"] is None else {"epoch": record["epoch"]})}
