"""Turn a plan into runs: folders in CoOp's layout, configurations as data, and dependencies."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cocoamix import dataset_table
from cocoamix.config.partition import KEY as PARTITION
from cocoamix.config.partition import LABEL, random_partition
from cocoamix.config.settings import literal
from cocoamix.errors import UserError
from cocoamix.io.paths import expand_home
from cocoamix.run.arguments import parse_arguments

from .plan import MODEL, SHOTS, SUBSET, Method, Plan

# Datasets that the package draws; they need no data root.
SYNTHETIC = frozenset(known.config for known in dataset_table.of_kind(dataset_table.SYNTHETIC))
_SUBSETS = ("base", "new", "all")  # in the order of their runs


@dataclass(frozen=True)
class Run:
    """One run of train.py: a method on a dataset or a part of its classes, with a seed and a number of shots."""

    plan: Plan
    method: Method
    dataset: Path  # its configuration file
    seed: int
    shots: int
    subset: str  # base, new, all
    draw: str = LABEL  # the partition of the classes: label is CoOp's, else random:K

    def of(self, name: str) -> Run:
        """Return the training run of another method that this one can use."""
        method = next(method for method in self.plan.methods if method.name == name)
        return replace(self, method=method).model

    @cached_property
    def model(self) -> Run:
        """The training run whose model it evaluates; itself if it loads none."""
        if self.method.model_of:
            return self.of(self.method.model_of)
        subset = "base" if self.plan.task == "base2new" else "all"
        trained = replace(self, subset=subset, dataset=self.plan.source or self.dataset)
        return self if trained == self or not self.method.train else trained

    @property
    def trains(self) -> bool:
        """Whether it trains a model, which it then evaluates."""
        return self.method.train and self.model is self

    @cached_property
    def needs(self) -> tuple[Path, ...]:
        """The folders of the runs that must be finished first."""
        used = [] if self.model is self else [self.model]
        used += [self.of(name) for name in MODEL.findall(str(self.method.set))]
        return tuple(dict.fromkeys(run.folder for run in used))

    @cached_property
    def name(self) -> str:
        """The name that the user sees, which --only matches."""
        draw = "" if self.draw == LABEL else self.draw
        seed, shots = (f"seed {self.seed}", f"{self.shots} shots") if self.method.train else ("", "")
        part = {"base2new": self.subset, "few-shot": shots}.get(self.plan.task, "")
        return " ".join(filter(None, [self.method.name, self.dataset.stem, draw, seed, part]))

    @cached_property
    def folder(self) -> Path:
        """The folder in which CoOp's scripts put the run."""
        method, task, dataset, seed = self.method, self.plan.task, self.dataset.stem, f"seed{self.seed}"
        shots, loads = f"{method.label}_{self.shots}shots", self.model is not self
        if task == "base2new":
            part = "train_base" if self.subset == "base" and not loads else f"test_{self.subset}"
            draw = [] if self.draw == LABEL else [self.draw.replace(":", "_")]
            folders = ["base2new", *draw, part, dataset, f"shots_{self.shots}", method.trainer, method.label, seed]
        elif task == "fscil":
            folders = ["fscil", dataset, method.trainer, method.label, seed]
        elif task == "xd" and not self.trains:
            folders = ["evaluation", method.trainer, shots, dataset, seed]
        elif not method.train:
            folders = [method.trainer, method.label, dataset]
        else:
            folders = [dataset, method.trainer, shots, seed]
        return self.plan.output.joinpath(*folders)

    @property
    def stored(self) -> frozenset[tuple[object, ...]]:
        """The parts of the feature store that the run reads, and fills if they are empty."""
        tested = ("test", self.dataset, self.subset, self.draw)
        return frozenset([tested, ("train", self.dataset, self.seed, self.shots)] if self.trains else [tested])

    @property
    def flags(self) -> dict[str, Any]:
        """The flags of train.py, by the names of their attributes; those left out have their defaults."""
        method, plan = self.method, self.plan
        flags: dict[str, Any] = {"root": plan.root} if plan.root else {}
        flags.update(seed=self.seed, trainer=method.trainer)
        flags.update(dataset_config_file=shorten(self.dataset), config_file=shorten(method.config))
        flags["output_dir"] = str(self.folder)
        if self.model is not self:
            flags.update(eval_only=True, model_dir=str(self.model.folder))
        elif not method.train and plan.task != "fscil":  # an fscil trainer knows that there is nothing to train
            flags["eval_only"] = True
        return {**flags, "load_epoch": method.epochs[0]} if method.epochs else flags

    @property
    def settings(self) -> dict[str, Any]:
        """Typed values that override the configuration files: its own, the plan's, the method's, the command line's."""
        settings: dict[str, Any] = {SHOTS: self.shots} if self.shots else {}
        if self.plan.task == "base2new":
            settings[SUBSET] = self.subset
        if self.draw != LABEL:
            settings[PARTITION] = self.draw
        used = {key: self._fill(value) for key, value in self.method.set.items()}
        settings.update({**self.plan.set, **used, **self.plan.overrides})
        if self.plan.store:
            settings["CACHE.DIR"] = str(self.plan.output / expand_home(self.plan.store))
        return settings

    def _fill(self, value: Any) -> Any:
        """Return a value with each {run:METHOD} replaced by the folder of that method's model."""
        if isinstance(value, list):
            return [self._fill(inner) for inner in value]
        return MODEL.sub(lambda name: str(self.of(name[1]).folder), value) if isinstance(value, str) else value

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
    groups: list[tuple[Path, ...]] = [(dataset,) for dataset in plan.datasets]
    if plan.source is not None:
        groups = [tuple(dict.fromkeys([plan.source, *plan.datasets]))]
    if not plan.root and any(dataset.stem not in SYNTHETIC for group in groups for dataset in group):
        raise UserError(f"{plan.where} needs a data root: use --root DIR, the variable DATA, or root: DIR in the plan.")
    subsets = {"base", *(plan.subsets or ("new",))} if plan.task == "base2new" else {"all"}
    draws = [random_partition(number) for number in plan.partitions] or [LABEL]
    drawn = list(itertools.product(plan.shots or (0,), plan.seeds))
    return [
        Run(plan, method, dataset, seed, shots, subset, draw)
        for group, draw, (shots, seed), method in itertools.product(groups, draws, drawn, plan.methods)
        if method.train or (shots, seed) == drawn[0]  # an untrained method depends on neither
        for dataset, subset in itertools.product(group, sorted(subsets, key=_SUBSETS.index))
    ]


def select(runs: Sequence[Run], patterns: Sequence[str]) -> list[Run]:
    """Return the runs whose names match one of the patterns, and those that they need."""
    wanted = {run.folder for run in runs if any(fnmatch.fnmatch(run.name, pattern) for pattern in patterns or "*")}
    if not wanted:
        raise UserError(f"--only matches no run. A name looks like {runs[0].name!r}; --dry-run shows all.")
    for run in reversed(runs):
        if run.folder in wanted:
            wanted.update(run.needs)
    return [run for run in runs if run.folder in wanted]
