"""Find the runs below folders, and read each from its results.json or its logs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cocoamix.config import roles
from cocoamix.config.settings import flatten
from cocoamix.errors import UserError, brief, shorten
from cocoamix.io.texts import UnreadableError
from cocoamix.report.names import dataset_name, is_zero_shot, simplify
from cocoamix.run.results import RESULTS, Results, ResultsError

from .damage import refuse_damaged, refuse_invalid_name, refuse_strings_for_numbers
from .logs import Log, canonical, list_logs, read_log
from .own_names import own_name
from .paths import Place, read_path
from .zero_shot import without_training_facts, without_training_settings


@dataclass(frozen=True)
class Run:
    """One evaluation of one trained model."""

    folder: str  # as the user would type it
    origin: int  # index of the folder given to the report below which it was found
    trainer: str
    config: str
    variant: str
    task: str  # base2new, transfer, few-shot, fscil
    dataset: str
    subset: str  # base, new, all
    shots: int | None  # None: does not apply, or unknown
    seed: int | None
    metrics: dict[str, float]
    sessions: tuple[float, ...] = ()  # accuracies of class-incremental learning
    session_parts: tuple[tuple[float, float | None], ...] = ()  # on base and on novel classes, by session
    parameters: int | None = None  # number of trained ones, if the run states it
    source: str = ""  # dataset on which a transferred model was trained, if the run states it
    protocol: dict[str, Any] = field(default_factory=dict)  # dotted keys
    settings: dict[str, Any] = field(default_factory=dict)  # dotted keys
    fingerprint: str = ""
    rest: tuple[str, ...] = ()  # folders above, of unknown meaning
    epoch: int | None = None  # epochs of training of the evaluated model, if it was the last of its run
    written: float = 0.0
    read_from: str = RESULTS
    title: str = ""  # the run's name for its method, if it has one
    prompts: tuple[tuple[str, str], ...] = ()  # trainer and configuration of the runs whose prompts it builds on

    @property
    def accuracy(self) -> float:
        """The accuracy in percent."""
        return self.metrics["accuracy"]

    @property
    def earlier_epoch(self) -> int | None:
        """The epoch of the evaluated model, if it is not the last of its training."""
        last = self.settings.get("OPTIM.MAX_EPOCH")
        return self.epoch if self.epoch is not None and isinstance(last, float) and self.epoch < last else None


@dataclass(frozen=True)
class Problem:
    """A folder that should be a run but cannot be used, and why."""

    folder: str
    reason: str
    kind: str  # broken, unfinished, duplicate


@dataclass
class Inventory:
    """The runs below some folders, and the folders that cannot be used."""

    runs: list[Run] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_runs(directories: Sequence[str | os.PathLike[str]]) -> Inventory:
    """Read every run below the given folders. A folder is a run if it holds results.json or a log."""
    inventory = Inventory()
    seen: set[str] = set()
    for origin, directory in enumerate(directories):
        root = Path(directory)
        if not os.path.isdir(root):
            what = "is a file" if os.path.exists(root) else "does not exist"
            raise UserError(
                f"{shorten(str(root), 300)} {what}. Give the output folder of a run or any folder above it, "
                "such as output/."
            )
        start = root.resolve().parts
        for folder, names in _walk(root, seen):
            place = read_path(start + folder.relative_to(root).parts)
            _read_folder(folder, names, place, origin, inventory)
    _drop_logs_above_runs(inventory)
    if not inventory.runs and not inventory.problems:
        listed = ", ".join(str(directory) for directory in directories)
        raise UserError(
            f"There is no run below {listed}: no folder in it holds a {RESULTS} or a log.txt. "
            "Give the folder that train.py wrote to (--output-dir) or one above it."
        )
    return inventory


def _walk(root: Path, seen: set[str]) -> Iterator[tuple[Path, list[str]]]:
    """Yield folders with results or logs. A folder that links or arguments lead to twice is yielded once."""
    for path, folders, names in os.walk(root, followlinks=True):
        real = os.path.realpath(path)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "tensorboard")
        if RESULTS in names or any(name.startswith("log.txt") for name in names):
            yield Path(path), names


def _read_folder(folder: Path, names: list[str], place: Place, origin: int, inventory: Inventory) -> None:
    if RESULTS in names:
        try:
            inventory.runs.append(_read_results(folder, names, place, origin, inventory))
        except (UserError, OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
            why = error.reason if isinstance(error, ResultsError) else str(error)
            inventory.problems.append(Problem(str(folder), f"{RESULTS} cannot be used ({why})", "broken"))
        return
    logs = list_logs(folder, names)
    if not logs:
        return
    reason = ""
    for path in reversed(logs):  # the newest that has a result
        try:
            log = read_log(path)
        except UnreadableError as error:
            inventory.problems.append(Problem(str(folder), f"{path.name} {error.reason}", "broken"))
            return
        if log.metrics:
            try:
                inventory.runs += _runs_of_log(folder, path, log, place, origin)
            except (OSError, ValueError, TypeError, OverflowError) as error:
                inventory.problems.append(Problem(str(folder), str(error), "broken"))
                return
            if reason:
                inventory.notes.append(f"{folder}: {reason}; the result of the earlier {path.name} is used.")
            if log.unfinished:
                inventory.problems.append(Problem(str(folder), f"{path.name}: {log.unfinished}", "unfinished"))
            return
        reason = reason or f"{path.name}: {log.unfinished}"
    inventory.problems.append(Problem(str(folder), reason, "unfinished"))


def _drop_logs_above_runs(inventory: Inventory) -> None:
    """Drop unfinished logs in folders above runs: they belong to a launcher (DePT has one), not to a run."""
    if not inventory.problems:
        return
    above = {str(parent) for run in inventory.runs for parent in Path(run.folder).parents}
    inventory.problems = [p for p in inventory.problems if p.kind != "unfinished" or p.folder not in above]


# ---------------------------------------------------------------------------------------- results.json


def _read_results(folder: Path, names: list[str], place: Place, origin: int, inventory: Inventory) -> Run:
    path = folder / RESULTS
    results = Results.read(path)
    for key in ("trainer", "dataset"):
        if not getattr(results, key):
            raise ValueError(f"it has no {key!r}")
        refuse_invalid_name(getattr(results, key), key)
    sessions = tuple(session.accuracy for session in results.sessions or ())
    metrics = dict(results.metrics)
    if sessions:
        metrics.setdefault("accuracy", sessions[-1])
    protocol, config = _flatten(results.protocol), _flatten(results.config)
    refuse_damaged(protocol, "protocol")
    refuse_damaged(config, "config")
    refuse_damaged(metrics, "metrics", finite=False)
    refuse_strings_for_numbers(config)
    if results.unreadable_images:  # the accuracy is over fewer images
        protocol["unreadable_images"] = results.unreadable_images
        inventory.notes.append(
            f"{folder}: {results.unreadable_images:,} images could not be read and were left out of the run."
        )
    refuse_invalid_name(results.subset, "subset")
    refuse_invalid_name(results.fingerprint, "fingerprint")
    refuse_invalid_name(results.method or "", "method")
    run = Run(
        folder=str(folder),
        origin=origin,
        trainer=results.trainer,
        config=place.config,
        variant=place.variant,
        task="fscil" if sessions else place.task,
        dataset=own_name(results.dataset, config) or dataset_name(results.dataset),
        subset=results.subset or place.subset or "all",
        shots=results.shots if results.shots is not None and results.shots > 0 else place.shots,
        # A run without a seed (-1) gets that of its folder.
        seed=results.seed if results.seed is not None and results.seed >= 0 else place.seed,
        metrics=metrics,
        sessions=sessions,
        session_parts=tuple((session.base, session.novel) for session in results.sessions or ()),
        parameters=results.trained_parameters,
        protocol=protocol,
        settings=_settings(config, results.trainer),
        fingerprint=results.fingerprint,
        rest=place.rest,
        epoch=_last_epoch(_fixed_epochs(results), protocol),
        written=path.stat().st_mtime,
        title=results.method or "",
        prompts=_prompts(config.get("TRAINER.ENLEARN.PROMPTS")),
    )
    _check_range(run)
    run = _without_infinite_metrics(run, inventory)
    if not place.task or not place.config:
        logs = list_logs(folder, names)
        if logs:  # only the command line names the configuration and the loaded model
            run = _complete(run, read_log(logs[-1]).arguments)
    return _with_task(run)


def _settings(config: Mapping[str, Any], trainer: str) -> dict[str, Any]:
    """Return the settings of a run without those of other trainers."""
    name = simplify(trainer)
    sections = {key.split(".")[1] for key in config if key.startswith("TRAINER.") and key.count(".") > 1}
    own = {section for section in sections if simplify(section) in name} or sections
    others = {key for key in config if key.startswith("TRAINER.") and key.split(".")[1] in sections - own}
    return {key: value for key, value in config.items() if key not in others and roles.compared_in_cell(key)}


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


def _flatten(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings with dotted keys and canonical values."""
    return {key: canonical(value) for key, value in flatten(node).items()}


def _check_range(run: Run) -> None:
    for name, value in [("accuracy", run.metrics.get("accuracy")), *(("accuracy", value) for value in run.sessions)]:
        if value is None:
            raise ValueError(f"it has no {name!r}")
        if not 0 <= value <= 100:
            raise ValueError(f"its accuracy is {value}, which is not between 0 and 100")
    for name, number in (("seed", run.seed), ("shots", run.shots), ("epoch", run.epoch)):
        if number is not None and number >= 2**64:
            raise ValueError(f"its {name} is {brief(number)}, which is too large")


def _without_infinite_metrics(run: Run, inventory: Inventory) -> Run:
    """Drop metrics other than the accuracy that are not finite, such as the NLL of a confident wrong prediction."""
    infinite = [name for name, value in run.metrics.items() if not math.isfinite(value)]
    if infinite:
        inventory.notes.append(f"{run.folder}: {', '.join(infinite)} of its {RESULTS} is not finite and is left out.")
    return replace(run, metrics={name: value for name, value in run.metrics.items() if name not in infinite})


# ---------------------------------------------------------------------------------------- logs


def _runs_of_log(folder: Path, path: Path, log: Log, place: Place, origin: int) -> Iterable[Run]:
    """Yield the run of a log, or the two runs of a PromptKD log."""
    config, arguments = log.config, log.arguments
    trainer = str(config.get("TRAINER.NAME") or arguments.get("trainer") or place.trainer)
    dataset = str(config.get("DATASET.NAME") or _stem(arguments.get("dataset_config_file", "")) or place.dataset)
    if not trainer or not dataset:
        missing = "trainer" if not trainer else "dataset"
        raise ValueError(f"neither the path nor {path.name} names the {missing}")
    printed_shots, printed_seed = config.get("DATASET.NUM_SHOTS"), arguments.get("seed", "")
    shots = place.shots
    if isinstance(printed_shots, float) and printed_shots > 0:
        shots = int(printed_shots)
    refuse_damaged(config, "configuration")
    refuse_invalid_name(trainer, "trainer")
    refuse_invalid_name(dataset, "dataset")
    protocol = _protocol_of_log(config, trainer)
    loaded = arguments.get("load_epoch", "")
    epochs = (int(loaded) if loaded.isdigit() else None) if log.evaluates_only else config.get("OPTIM.MAX_EPOCH")
    run = Run(
        folder=str(folder),
        origin=origin,
        trainer=trainer,
        config=place.config,
        variant=place.variant,
        task=place.task,
        dataset=own_name(dataset, config) or dataset_name(dataset),
        subset=str(config.get("DATASET.SUBSAMPLE_CLASSES") or place.subset or "all"),
        shots=shots,
        seed=place.seed if place.seed is not None else int(printed_seed) if printed_seed.isdigit() else None,
        metrics={},
        protocol=protocol,
        settings=_settings(config, trainer),
        rest=place.rest,
        epoch=_last_epoch(epochs, protocol),
        written=path.stat().st_mtime,
        read_from=path.name,
    )
    run = _complete(run, arguments)
    for split, metrics in log.metrics.items():
        one = replace(run, metrics=metrics, subset=split or run.subset)
        if split:
            one = replace(one, task="base2new")
        _check_range(one)
        yield _with_task(one)


def _protocol_of_log(config: Mapping[str, Any], trainer: str) -> dict[str, Any]:
    """Return the protocol in a printed configuration, under the keys of our own results."""
    protocol = {f"transforms.{key[6:]}": value for key, value in config.items() if key.startswith("INPUT.")}
    section = {key.split(".")[1]: value for key, value in config.items() if re.match(r"^TRAINER\.\w+\.PREC$", key)}
    for key, name in (
        ("backbone", "MODEL.BACKBONE.NAME"),
        ("evaluated_on", "TEST.SPLIT"),
        ("model_selection", "TEST.FINAL_MODEL"),
    ):
        if name in config:
            protocol[key] = config[name]
    if trainer.upper() in section:
        protocol["precision"] = section[trainer.upper()]
    return protocol


def _complete(run: Run, arguments: Mapping[str, str]) -> Run:
    """Add facts that only the command line of a run states."""
    config = run.config or _stem(arguments.get("config_file", ""))
    loaded = arguments.get("model_dir", "")
    source, shots = run.source, run.shots
    if loaded and run.subset == "all":
        trained = read_path(Path(loaded).parts)
        if trained.dataset and dataset_name(trained.dataset) != run.dataset and trained.task != "base2new":
            source, shots = dataset_name(trained.dataset), trained.shots or shots
    return replace(run, config=config, source=source, shots=shots)


def _stem(path: str) -> str:
    return Path(path.strip()).stem if path.strip() else ""


def _with_task(run: Run) -> Run:
    """Set the task of a run, and drop from zero-shot runs what only training reads."""
    task = run.task
    if task != "fscil":
        if run.subset in ("base", "new"):
            task = "base2new"
        elif run.source and run.source != run.dataset:
            task = "transfer"
        task = task or "few-shot"
    if not is_zero_shot(run.trainer):
        return replace(run, task=task)
    protocol, settings = without_training_facts(run.protocol), without_training_settings(run.settings)
    return replace(run, task=task, shots=None, protocol=protocol, settings=settings)
