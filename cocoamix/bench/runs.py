"""Turn a plan into runs of train.py: folders in CoOp's layout, command lines, and dependencies."""

from __future__ import annotations

import fnmatch
import itertools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cocoamix import dataset_table
from cocoamix.config.partition import KEY as PARTITION
from cocoamix.config.partition import random_partition
from cocoamix.errors import UserError
from cocoamix.io.paths import expand_home

from .plan import Dataset, Method, Plan, models_in

# Datasets that the package draws; they need no data root.
SYNTHETIC = frozenset(one.config for one in dataset_table.of_kind(dataset_table.SYNTHETIC))


@dataclass(frozen=True)
class Run:
    """One call of train.py."""

    name: str  # shown to the user and matched by --only
    folder: Path
    arguments: tuple[str, ...]
    files: tuple[Path, ...]  # configuration files that it reads
    method: str
    dataset: str
    subset: str  # base, new, all
    seed: int
    shots: int
    trains: bool
    needs: tuple[Path, ...] = ()  # folders of runs that must be finished first
    partition: int | None = None  # K of random:K; None is CoOp's
    epoch: int | None = None  # of the checkpoint that it evaluates; None is the last one
    origins: tuple[tuple[str, str], ...] = ()  # keys of its options, and where the plan sets them, for messages

    @property
    def stored(self) -> frozenset[tuple[object, ...]]:
        """The parts of the feature store that the run reads, and fills if they are empty."""
        tested = ("test", self.dataset, self.subset, self.partition)
        return frozenset([tested, ("train", self.dataset, self.seed, self.shots)] if self.trains else [tested])


def expand(plan: Plan) -> list[Run]:
    """Return the runs of a plan, each after those that it needs."""
    if not plan.root and any(one.name not in SYNTHETIC for one in _all_datasets(plan)):
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


def train_command(given: Sequence[str] = ()) -> list[str]:
    """Return the command of a run: the given one, else this tree's train.py, else the installed command."""
    if given:
        return list(given)
    script = Path(__file__).resolve().parents[2] / "train.py"
    return [sys.executable, shorten(script)] if script.is_file() else [sys.executable, "-m", "cocoamix", "train"]


def shorten(path: Path) -> str:
    """Return a path relative to the current folder if it is inside it."""
    absolute = Path(os.path.abspath(path))
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


# ---------------------------------------------------------------------- folders


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
    if plan.task == "xd":
        assert plan.source is not None
        targets = [plan.source, *(one for one in plan.datasets if one != plan.source)]
        for seed in plan.seeds:
            for method in _methods_to_run(plan, seed, plan.shots[0]):
                yield from (_Place(method, dataset, seed, plan.shots[0]) for dataset in targets)
        return
    subsets = plan.subsets if plan.task == "base2new" else ("all",)
    for dataset, partition in itertools.product(plan.datasets, plan.partitions or (None,)):
        for shots in plan.shots:
            for seed in plan.seeds:
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
    if plan.task == "xd":
        assert plan.source is not None
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


def _all_datasets(plan: Plan) -> list[Dataset]:
    return [*plan.datasets, *([plan.source] if plan.source else [])]


# ---------------------------------------------------------------------- one run


def _make(plan: Plan, place: _Place) -> Run:
    """Return the run of a place."""
    method, dataset, folder, model = place.method, place.dataset, _folder(plan, place), _training_place(plan, place)
    arguments = ["--root", plan.root] if plan.root else []
    arguments += ["--seed", str(place.seed), "--trainer", method.trainer]
    arguments += ["--dataset-config-file", shorten(dataset.config), "--config-file", shorten(method.config)]
    arguments += ["--output-dir", str(folder)]
    needs = []
    if model is not None:
        needs.append(_folder(plan, model))
        arguments += ["--eval-only", "--model-dir", str(needs[0])]
        arguments += ["--load-epoch", str(method.epoch)] if method.epoch is not None else []
    elif not method.trained and plan.task != "fscil":  # an fscil trainer knows that there is nothing to train
        arguments += ["--eval-only"]
    options: dict[str, Any] = {"DATASET.NUM_SHOTS": place.shots} if place.shots else {}
    if plan.task == "base2new":
        options["DATASET.SUBSAMPLE_CLASSES"] = place.subset
    if place.partition is not None:
        options[PARTITION] = random_partition(place.partition)
    options.update([*plan.options, *method.options, *plan.overrides])
    if plan.store:
        options["CACHE.DIR"] = plan.output / expand_home(plan.store)
    others = {}  # the folders that {run:METHOD} in values refers to
    for name in models_in(method.options):
        other = replace(place, method=plan.method(name))
        others[name] = _folder(plan, _training_place(plan, other) or other)
    for key, value in options.items():
        arguments += [key, re.sub(r"\{run:([^}]+)\}", lambda found: str(others[found[1]]), str(value))]
    origins = {key: plan.where for key, _ in plan.options}
    origins.update((key, f"the method {method.name} of {plan.where}") for key, _ in method.options)
    for key, _ in plan.overrides:  # these are of the command line
        origins.pop(key, None)
    part = {"base2new": place.subset, "few-shot": f"{place.shots} shots" if method.trained else ""}.get(plan.task, "")
    halves = "" if place.partition is None else random_partition(place.partition)
    words = [method.name, dataset.name, halves, f"seed {place.seed}" if method.trained else "", part]
    return Run(
        name=" ".join(filter(None, words)),
        folder=folder,
        arguments=tuple(arguments),
        files=(dataset.config, method.config),
        method=method.name,
        dataset=dataset.name,
        subset=place.subset,
        seed=place.seed,
        shots=place.shots,
        trains=method.trained and model is None,
        needs=tuple(dict.fromkeys([*needs, *others.values()])),
        partition=place.partition,
        epoch=method.epoch,
        origins=tuple(origins.items()),
    )
