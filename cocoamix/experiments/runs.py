"""Turn a plan into runs: folders in CoOp's layout, configurations as data, and dependencies."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cocoamix import dataset_table
from cocoamix.config.partition import KEY as PARTITION
from cocoamix.config.partition import LABEL, random_partition
from cocoamix.config.settings import literal
from cocoamix.errors import UserError
from cocoamix.io.paths import expand_home
from cocoamix.run.arguments import parse_arguments

from .plan import Dataset, Method, Plan, Settings, models_in

# Datasets that the package draws; they need no data root.
SYNTHETIC = frozenset(known.config for known in dataset_table.of_kind(dataset_table.SYNTHETIC))
_MODEL = re.compile(r"\{run:([^}]+)\}")


@dataclass(frozen=True)
class Run:
    """One run of train.py, as data: its flags and its settings."""

    name: str  # shown to the user and matched by --only
    folder: Path
    flags: Mapping[str, Any]  # of train.py, by the names of their attributes; those left out have their defaults
    settings: Settings  # typed values that override the configuration files
    method: str
    trainer: str
    dataset: str
    subset: str  # base, new, all
    seed: int
    shots: int
    trains: bool
    needs: tuple[Path, ...] = ()  # folders of runs that must be finished first
    draw: str = LABEL  # the partition of the classes: label is CoOp's, else random:K
    epoch: int | None = None  # of the checkpoint that it evaluates; None is the last one
    origins: tuple[tuple[str, str], ...] = ()  # keys of its settings, and where the plan sets them, for messages

    @property
    def stored(self) -> frozenset[tuple[object, ...]]:
        """The parts of the feature store that the run reads, and fills if they are empty."""
        tested = ("test", self.dataset, self.subset, self.draw)
        return frozenset([tested, ("train", self.dataset, self.seed, self.shots)] if self.trains else [tested])

    def arguments(self) -> argparse.Namespace:
        """Return the flags as train.py has them, with the settings as words for its log."""
        arguments = parse_arguments([])
        vars(arguments).update(self.flags, opts=[word for pair in self.settings.items() for word in map(str, pair)])
        return arguments

    def command(self) -> str:
        """Return the command line that is equivalent to this run."""
        words = []
        for name, value in self.flags.items():
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        for key, value in self.settings.items():
            words += [key, as_word(value)]
        return shlex.join([*train_command(), *words])


def as_word(value: Any) -> str:
    """Return a value as a word of a command line, which train.py reads as the same value."""
    if not isinstance(value, str):
        return repr(value)
    is_kept = isinstance(literal(value), (str, dict, set)) and literal(value) in (value, {}) and value[:2] != "--"
    return value if is_kept else repr(value)


def from_word(word: str) -> Any:
    """Return the value of a word of a command line, as train.py reads it."""
    value = literal(word)
    return word if isinstance(value, (dict, set)) else value  # no key takes these, but "{}" is a template


def train_command() -> list[str]:
    """Return the command of a run: this tree's train.py, or else the installed command."""
    script = Path(__file__).resolve().parents[2] / "train.py"
    return [sys.executable, shorten(script)] if script.is_file() else [sys.executable, "-m", "cocoamix", "train"]


def shorten(path: Path) -> str:
    """Return a path relative to the current folder if it is inside it."""
    absolute = Path(os.path.abspath(path))
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def expand(plan: Plan) -> list[Run]:
    """Return the runs of a plan, each after those that it needs."""
    datasets = [*plan.datasets, *([plan.source] if plan.source else [])]
    if not plan.root and any(dataset.name not in SYNTHETIC for dataset in datasets):
        raise UserError(
            f"The plan {plan.name} reads its datasets from a data root. Give it with --root DIR, with the "
            "environment variable DATA, or with root: DIR in the plan."
        )
    return [_make(plan, place) for place in _places(plan)]


def select(runs: Sequence[Run], patterns: Sequence[str]) -> list[Run]:
    """Return the runs whose names match one of the patterns, and those that they need."""
    if not patterns:
        return list(runs)
    wanted = {run.folder for run in runs if any(fnmatch.fnmatch(run.name, pattern) for pattern in patterns)}
    if not wanted:
        raise UserError(
            f"No run of the plan matches {' or '.join(patterns)}. A name looks like {runs[0].name!r}; "
            "--dry-run shows all."
        )
    for run in reversed(runs):
        if run.folder in wanted:
            wanted.update(run.needs)
    return [run for run in runs if run.folder in wanted]


# ---------------------------------------------------------------------- places


@dataclass(frozen=True)
class _Place:
    """What a run evaluates: a method on a dataset or a subset of its classes, with a seed and a number of shots."""

    method: Method
    dataset: Dataset
    seed: int
    shots: int
    subset: str = "all"
    partition: int | None = None


def _places(plan: Plan) -> Iterator[_Place]:
    """Yield the places of a plan, each training before the evaluations of its model."""
    if plan.source is not None:
        targets = [plan.source, *(dataset for dataset in plan.datasets if dataset != plan.source)]
        for seed in plan.seeds:
            for method in _methods_to_run(plan, seed, plan.shots[0]):
                yield from (_Place(method, dataset, seed, plan.shots[0]) for dataset in targets)
        return
    subsets = plan.subsets if plan.task == "base2new" else ("all",)
    for dataset, partition in itertools.product(plan.datasets, plan.partitions or (None,)):
        for shots, seed in itertools.product(plan.shots, plan.seeds):
            for method in _methods_to_run(plan, seed, shots):
                yield from (_Place(method, dataset, seed, shots, subset, partition) for subset in subsets)


def _methods_to_run(plan: Plan, seed: int, shots: int) -> list[Method]:
    """Return the methods to run. Untrained ones depend neither on the seed nor on the shots, so they run once."""
    first = (seed, shots) == (plan.seeds[0], plan.shots[0])
    return [method for method in plan.methods if method.trained or first]


def _training_place(plan: Plan, place: _Place) -> _Place | None:
    """Return the place of the training run whose model a run evaluates, or None if it loads no model."""
    method = place.method
    owner = plan.method(method.model_of) if method.model_of else method
    home = replace(place, method=owner, subset="base" if plan.task == "base2new" else "all")
    if plan.source is not None:
        home = replace(home, dataset=plan.source)
    return home if method.trained and home != place else None


def _folder(plan: Plan, place: _Place) -> Path:
    """Return the folder in which CoOp's scripts put a run."""
    method, seed = place.method, f"seed{place.seed}"
    evaluates = _training_place(plan, place) is not None or not method.trained
    shots = f"{method.label}_{place.shots}shots"
    if plan.task == "base2new":
        trains = place.subset == "base" and (not evaluates or not method.trained)
        part = "train_base" if trains else f"test_{place.subset}"
        above = ["base2new"] if place.partition is None else ["base2new", f"random_{place.partition}"]
        folders = [*above, part, place.dataset.name, f"shots_{place.shots}", method.trainer, method.label, seed]
    elif plan.task == "fscil":
        folders = ["fscil", place.dataset.name, method.trainer, method.label, seed]
    elif plan.task == "xd" and evaluates:
        folders = ["evaluation", method.trainer, shots, place.dataset.name, seed]
    elif not method.trained:
        folders = [method.trainer, method.label, place.dataset.name]
    else:
        folders = [place.dataset.name, method.trainer, shots, seed]
    return plan.output.joinpath(*folders)


# ---------------------------------------------------------------------- one run


def _make(plan: Plan, place: _Place) -> Run:
    """Return the run of a place."""
    method, model, folder = place.method, _training_place(plan, place), _folder(plan, place)
    used = {name: _folder_of_model(plan, place, name) for name in models_in(method.settings)}
    home = [] if model is None else [_folder(plan, model)]
    draw = LABEL if place.partition is None else random_partition(place.partition)
    return Run(
        name=_name(plan, place),
        folder=folder,
        flags=_flags(plan, place, folder, home[0] if home else None),
        settings={key: _filled(value, used) for key, value in _settings(plan, place).items()},
        method=method.name,
        trainer=method.trainer,
        dataset=place.dataset.name,
        subset=place.subset,
        seed=place.seed,
        shots=place.shots,
        trains=method.trained and model is None,
        needs=tuple(dict.fromkeys([*home, *used.values()])),
        draw=draw,
        epoch=method.epoch,
        origins=_origins(plan, method),
    )


def _name(plan: Plan, place: _Place) -> str:
    method = place.method
    halves = "" if place.partition is None else random_partition(place.partition)
    shots = f"{place.shots} shots" if method.trained else ""
    part = {"base2new": place.subset, "few-shot": shots}.get(plan.task, "")
    seed = f"seed {place.seed}" if method.trained else ""
    return " ".join(filter(None, [method.name, place.dataset.name, halves, seed, part]))


def _flags(plan: Plan, place: _Place, folder: Path, model: Path | None) -> dict[str, Any]:
    """Return the flags of train.py for a run, which loads a model if `model` is its folder."""
    method = place.method
    flags: dict[str, Any] = {"root": plan.root} if plan.root else {}
    flags.update(seed=place.seed, trainer=method.trainer)
    flags.update(dataset_config_file=shorten(place.dataset.config), config_file=shorten(method.config))
    flags["output_dir"] = str(folder)
    if model is not None:
        flags.update(eval_only=True, model_dir=str(model))
        if method.epoch is not None:
            flags["load_epoch"] = method.epoch
    elif not method.trained and plan.task != "fscil":  # an fscil trainer knows that there is nothing to train
        flags["eval_only"] = True
    return flags


def _settings(plan: Plan, place: _Place) -> dict[str, Any]:
    """Return the settings of a run: those of its place, then the plan's, the method's and the command line's."""
    settings: dict[str, Any] = {"DATASET.NUM_SHOTS": place.shots} if place.shots else {}
    if plan.task == "base2new":
        settings["DATASET.SUBSAMPLE_CLASSES"] = place.subset
    if place.partition is not None:
        settings[PARTITION] = random_partition(place.partition)
    settings.update({**plan.settings, **place.method.settings, **plan.overrides})
    if plan.store:
        settings["CACHE.DIR"] = str(plan.output / expand_home(plan.store))
    return settings


def _folder_of_model(plan: Plan, place: _Place, name: str) -> Path:
    """Return the folder of the training run of another method at a place."""
    other = replace(place, method=plan.method(name))
    return _folder(plan, _training_place(plan, other) or other)


def _filled(value: Any, folders: Mapping[str, Path]) -> Any:
    """Return a value with each {run:METHOD} replaced by the folder of that method's model."""
    if isinstance(value, list):
        return [_filled(inner, folders) for inner in value]
    return _MODEL.sub(lambda match: str(folders[match[1]]), value) if isinstance(value, str) else value


def _origins(plan: Plan, method: Method) -> tuple[tuple[str, str], ...]:
    origins = dict.fromkeys(plan.settings, plan.where)
    origins.update(dict.fromkeys(method.settings, f"the method {method.name} of {plan.where}"))
    return tuple((key, origin) for key, origin in origins.items() if key not in plan.overrides)
