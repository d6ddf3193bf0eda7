"""Turn a plan into runs: folders in CoOp's layout, configurations as data, and dependencies."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import os
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

from .plan import Method, Plan, models_in

# Datasets that the package draws; they need no data root.
SYNTHETIC = frozenset(known.config for known in dataset_table.of_kind(dataset_table.SYNTHETIC))
_SUBSETS = ("base", "new", "all")  # in the order of their runs


@dataclass(frozen=True)
class Run:
    """One run of train.py, as data: its flags and its settings."""

    name: str  # shown to the user and matched by --only
    folder: Path
    flags: Mapping[str, Any]  # of train.py, by the names of their attributes; those left out have their defaults
    settings: Mapping[str, Any]  # typed values that override the configuration files
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
        """Return the equivalent command line of this tree's train.py, or else of the installed command."""
        script = Path(__file__).resolve().parents[2] / "train.py"
        words = [sys.executable, *([shorten(script)] if script.is_file() else ["-m", "cocoamix", "train"])]
        for name, value in self.flags.items():
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        return shlex.join([*words, *(word for key, value in self.settings.items() for word in (key, as_word(value)))])


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


def shorten(path: Path) -> str:
    """Return a path relative to the current folder if it is inside it."""
    absolute = Path(os.path.abspath(path))
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def expand(plan: Plan) -> list[Run]:
    """Return the runs of a plan, each after those that it needs."""
    places = list(_places(plan))
    if not plan.root and any(place.dataset.stem not in SYNTHETIC for place in places):
        raise UserError(f"{plan.where} needs a data root: use --root DIR, the variable DATA, or root: DIR in the plan.")
    return [place.run() for place in places]


def select(runs: Sequence[Run], patterns: Sequence[str]) -> list[Run]:
    """Return the runs whose names match one of the patterns, and those that they need."""
    wanted = {run.folder for run in runs if any(fnmatch.fnmatch(run.name, pattern) for pattern in patterns or "*")}
    if not wanted:
        raise UserError(f"--only matches no run. A name looks like {runs[0].name!r}; --dry-run shows all.")
    for run in reversed(runs):
        if run.folder in wanted:
            wanted.update(run.needs)
    return [run for run in runs if run.folder in wanted]


def _places(plan: Plan) -> Iterator[_Place]:
    """Yield the places of a plan, each training before the evaluations of its model."""
    groups: list[tuple[Path, ...]] = [(dataset,) for dataset in plan.datasets]
    if plan.source is not None:
        groups = [tuple(dict.fromkeys([plan.source, *plan.datasets]))]
    subsets = plan.subsets or (("base", "new") if plan.task == "base2new" else ("all",))
    draws = [random_partition(number) for number in plan.partitions] or [LABEL]
    drawn = list(itertools.product(plan.shots or (0,), plan.seeds))
    for group, draw, (shots, seed), method in itertools.product(groups, draws, drawn, plan.methods):
        if method.train or (shots, seed) == drawn[0]:  # an untrained method depends on neither
            for dataset, subset in itertools.product(group, sorted(subsets, key=_SUBSETS.index)):
                yield _Place(plan, method, dataset, seed, shots, subset, draw)


@dataclass(frozen=True)
class _Place:
    """What a run evaluates: a method on a dataset or a subset of its classes, with a seed and a number of shots."""

    plan: Plan
    method: Method
    dataset: Path
    seed: int
    shots: int
    subset: str
    draw: str

    def run(self) -> Run:
        """Return the run."""
        method, model = self.method, [] if self.model == self else [self.model.folder]
        used = {name: self.of(name).model.folder for name in models_in(method.set)}
        return Run(
            name=self.name,
            folder=self.folder,
            flags=self.flags(),
            settings={key: _filled(value, used) for key, value in self.settings().items()},
            method=method.name,
            trainer=method.trainer,
            dataset=self.dataset.stem,
            subset=self.subset,
            seed=self.seed,
            shots=self.shots,
            trains=method.train and not model,
            needs=tuple(dict.fromkeys([*model, *used.values()])),
            draw=self.draw,
            epoch=method.epoch,
            origins=self.origins(),
        )

    def of(self, name: str) -> _Place:
        """Return the place with another method."""
        return replace(self, method=next(method for method in self.plan.methods if method.name == name))

    @property
    def model(self) -> _Place:
        """The place of the training run whose model it evaluates; itself if it loads none."""
        if not self.method.train:
            return self
        subset = "base" if self.plan.task == "base2new" else "all"
        owner = self.of(self.method.model_of) if self.method.model_of else self
        return replace(owner, subset=subset, dataset=self.plan.source or self.dataset)

    @property
    def name(self) -> str:
        """The name of the run."""
        draw = "" if self.draw == LABEL else self.draw
        seed, shots = (f"seed {self.seed}", f"{self.shots} shots") if self.method.train else ("", "")
        part = {"base2new": self.subset, "few-shot": shots}.get(self.plan.task, "")
        return " ".join(filter(None, [self.method.name, self.dataset.stem, draw, seed, part]))

    @property
    def folder(self) -> Path:
        """The folder in which CoOp's scripts put the run."""
        method, task, dataset, seed = self.method, self.plan.task, self.dataset.stem, f"seed{self.seed}"
        shots, loads = f"{method.label}_{self.shots}shots", self.model != self
        if task == "base2new":
            part = "train_base" if self.subset == "base" and not loads else f"test_{self.subset}"
            draw = [] if self.draw == LABEL else [self.draw.replace(":", "_")]
            folders = ["base2new", *draw, part, dataset, f"shots_{self.shots}", method.trainer, method.label, seed]
        elif task == "fscil":
            folders = ["fscil", dataset, method.trainer, method.label, seed]
        elif task == "xd" and (loads or not method.train):
            folders = ["evaluation", method.trainer, shots, dataset, seed]
        elif not method.train:
            folders = [method.trainer, method.label, dataset]
        else:
            folders = [dataset, method.trainer, shots, seed]
        return self.plan.output.joinpath(*folders)

    def flags(self) -> dict[str, Any]:
        """Return the flags of train.py."""
        method, plan = self.method, self.plan
        flags: dict[str, Any] = {"root": plan.root} if plan.root else {}
        flags.update(seed=self.seed, trainer=method.trainer)
        flags.update(dataset_config_file=shorten(self.dataset), config_file=shorten(method.config))
        flags["output_dir"] = str(self.folder)
        if self.model != self:
            flags.update(eval_only=True, model_dir=str(self.model.folder))
        elif not method.train and plan.task != "fscil":  # an fscil trainer knows that there is nothing to train
            flags["eval_only"] = True
        return flags if method.epoch is None else {**flags, "load_epoch": method.epoch}

    def settings(self) -> dict[str, Any]:
        """Return its own settings, then the plan's, the method's and the command line's, which override them."""
        settings: dict[str, Any] = {"DATASET.NUM_SHOTS": self.shots} if self.shots else {}
        if self.plan.task == "base2new":
            settings["DATASET.SUBSAMPLE_CLASSES"] = self.subset
        if self.draw != LABEL:
            settings[PARTITION] = self.draw
        settings.update({**self.plan.set, **self.method.set, **self.plan.overrides})
        if self.plan.store:
            settings["CACHE.DIR"] = str(self.plan.output / expand_home(self.plan.store))
        return settings

    def origins(self) -> tuple[tuple[str, str], ...]:
        """Return where the keys are set, except for those of the command line."""
        where = self.plan.where
        origins = dict.fromkeys(self.plan.set, where)
        origins.update(dict.fromkeys(self.method.set, f"the method {self.method.name} of {where}"))
        return tuple((key, origin) for key, origin in origins.items() if key not in self.plan.overrides)


def _filled(value: Any, folders: Mapping[str, Path]) -> Any:
    """Return a value with each {run:METHOD} replaced by the folder of that method's model."""
    if isinstance(value, list):
        return [_filled(inner, folders) for inner in value]
    for name, folder in folders.items() if isinstance(value, str) else ():
        value = value.replace(f"{{run:{name}}}", str(folder))
    return value
