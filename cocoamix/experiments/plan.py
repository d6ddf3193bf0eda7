"""Plans: methods, datasets, seeds and a task. A plan is read from a YAML file, whose keys plan_file.py describes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from cocoamix.config import shipped as configurations
from cocoamix.config.partition import KEY as PARTITION
from cocoamix.errors import UserError, brief, nearest, shorten, some_of
from cocoamix.io.paths import expand_home

from .plan_file import MethodEntry, PlanFile, Subset, find_plan, inside, place_of, read_file, shipped

__all__ = ["Dataset", "Method", "Plan", "describe", "load_plan", "models_in", "override", "shipped"]

Settings = Mapping[str, Any]  # values by dotted key of the configuration


@dataclass(frozen=True)
class Method:
    """A trainer under a configuration: a row of the table."""

    name: str
    trainer: str
    config: Path  # configuration file
    label: str  # name of its folder in CoOp's layout
    settings: Settings = field(default_factory=dict)
    swept: tuple[str, ...] = ()  # keys of a sweep; the label has their values
    trained: bool = True  # an untrained method depends neither on the seed nor on the shots
    model_of: str = ""  # the method whose trained model this one evaluates with its own settings
    epoch: int | None = None  # of that model's checkpoint; None is the last one

    @property
    def uses(self) -> list[str]:
        """The methods whose models it uses."""
        return [*models_in(self.settings), *([self.model_of] if self.model_of else [])]


@dataclass(frozen=True)
class Dataset:
    """A dataset and its configuration file."""

    name: str
    config: Path


@dataclass(frozen=True)
class Plan:
    """A plan: what to run, and where its data and output are."""

    name: str
    about: str
    task: str
    methods: tuple[Method, ...]
    datasets: tuple[Dataset, ...]
    seeds: tuple[int, ...]
    shots: tuple[int, ...]
    output: Path
    subsets: tuple[str, ...] = ("base", "new")  # base2new: the label spaces of the evaluations
    partitions: tuple[int, ...] = ()  # base2new: K of the partitions random:K; empty is CoOp's
    source: Dataset | None = None  # xd: the training dataset
    root: str = ""  # the data root
    store: str = ""  # CACHE.DIR of every run, relative to `output`; empty is the user's own
    settings: Settings = field(default_factory=dict)
    overrides: Settings = field(default_factory=dict)  # from the command line; they override the plan and its methods
    where: str = "the plan"  # in messages
    disposable: bool = False  # runs whose results were made by other code are repeated; the old results are deleted

    def method(self, name: str) -> Method:
        """Return a method by its name."""
        return next(method for method in self.methods if method.name == name)


# ---------------------------------------------------------------------- the plan


def load_plan(
    name: str,
    methods: Sequence[str] = (),
    datasets: Sequence[str] = (),
    seeds: Sequence[int] = (),
    partitions: Sequence[int] = (),
) -> Plan:
    """Read and check a plan.

    The other arguments select a part of the plan; empty ones select everything. What is not selected may have missing
    configurations and trainers.

    Args:
        name: The name of a shipped plan, or the path of a YAML file.
        methods: The names of methods to keep.
        datasets: The names of datasets to keep.
        seeds: The seeds to keep.
        partitions: The numbers of partitions to keep.
    """
    path = find_plan(name)
    entries, here, where = read_file(path), path.parent, place_of(path)
    if partitions and entries.partitions is None:
        raise UserError(f"--partitions is for plans that have partitions, but {inside(where)} has none.")
    plan = Plan(
        name=path.stem,
        about=entries.about,
        task=entries.task,
        methods=tuple(_methods(entries, here, where, methods)),
        datasets=tuple(_dataset(name, here, where) for name in _datasets(entries.datasets, datasets)),
        seeds=_selected("--seeds", seeds, entries.seeds),
        shots=tuple(entries.shots or (0,)),
        subsets=tuple(subset for subset in get_args(Subset) if subset in (entries.subsets or ("base", "new"))),
        partitions=_selected("--partitions", partitions, entries.partitions or ()),
        source=_dataset(entries.source, here, where) if entries.source is not None else None,
        output=expand_home(entries.output),
        root=entries.root,
        store=entries.store,
        settings=entries.set or {},
        where=inside(where),
        disposable=entries.disposable,
    )
    _check_settings(plan, plan.settings, where)
    for method in plan.methods:
        _check_partition(plan, method.settings, where)
    _check_folders(plan, where)
    return plan


def describe(name: str) -> str:
    """Return the description of a plan."""
    return read_file(find_plan(name)).about


def override(plan: Plan, settings: Settings) -> Plan:
    """Return a plan with settings that override those of the plan and its methods."""
    _check_settings(plan, settings, "--set")
    for key, method in itertools.product(settings, plan.methods):
        if key in method.swept:
            raise UserError(
                f"--set {key} would undo the sweep of {key} in the plan {plan.name}. Choose among its methods "
                f"with --methods, such as {method.name!r}."
            )
    return replace(plan, overrides=dict(settings))


def models_in(value: Any) -> list[str]:
    """Return the methods that `{run:NAME}` in a value, or in the values of a list or mapping, refers to."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return [name for inner in value for name in models_in(inner)]
    return [part.split("}")[0] for part in value.split("{run:")[1:]] if isinstance(value, str) else []


def _selected(flag: str, wanted: Sequence[Any], there: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values that a flag of the command line selects; without one, all."""
    for value in wanted:
        if value not in there:
            names = [str(known) for known in there]
            raise UserError(
                f"{flag} names {value}, which is not in the plan.{nearest(str(value), names)} It has: {some_of(names)}."
            )
    return tuple(value for value in there if value in wanted or not wanted)


def _check_settings(plan: Plan, settings: Settings, where: str) -> None:
    """Refuse settings that only a method can have, or that the plan makes itself."""
    if models_in(settings):
        raise UserError(f"{where} has {{run:...}} in a value of set; it belongs in the set of a method.")
    _check_partition(plan, settings, where)


def _check_partition(plan: Plan, settings: Settings, where: str) -> None:
    """Refuse a partition that is set twice, because runs would not match the partition in their folder names."""
    if plan.partitions and PARTITION in settings:
        raise UserError(
            f"{where} sets {PARTITION}, which the key partitions of {plan.where} sets already. Leave out one."
        )


def _check_folders(plan: Plan, where: str) -> None:
    """Refuse two methods that would write to the same folder."""
    owners: dict[tuple[str, str], str] = {}
    for method in plan.methods:
        other = owners.setdefault((method.trainer, method.label), method.name)
        if other != method.name:
            raise UserError(
                f"The methods {other} and {method.name} of {inside(where)} would write to the same folder, "
                f"{method.trainer}/{method.label}. Give one of them a tag."
            )


# ---------------------------------------------------------------------- methods


def _methods(entries: PlanFile, here: Path, where: str, wanted: Sequence[str]) -> Iterator[Method]:
    """Yield the wanted methods and those whose models they use."""
    methods = [
        method
        for entry in entries.methods
        for swept in _swept(entry)
        for method in _at_epochs(swept, entry.epochs, entries.task, where)
    ]
    names = [method.name for method in methods]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise UserError(f"{where} has two methods named {repeated[0]}. Give them different names.")
    for place, method in enumerate(methods):
        _check_uses(method, methods[:place], names, where)
    kept = set(_selected("--methods", wanted, names))
    for method in reversed(methods):  # a method uses only earlier ones
        if method.name in kept:
            kept.update(method.uses)
    for method in methods:
        if method.name in kept:
            config = str(method.config)
            name = config if "/" in config or _is_file(config) else f"{method.trainer}/{config}"
            file = _find_file("trainers", name, here, f"The method {method.name} of {inside(where)}")
            yield replace(method, config=file, label="_".join(filter(None, [file.stem, method.label])))


def _swept(entry: MethodEntry) -> Iterator[Method]:
    """Yield a method for each combination of values in a sweep; without one, a single method.

    Its configuration is not a file yet, and its label is only the tag.
    """
    name, sweep = entry.name or entry.trainer, entry.sweep or {}
    for values in itertools.product(*sweep.values()):
        texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
        shown = [(key.split(".")[-1], text) for key, text in zip(sweep, texts, strict=True)]
        words = [f"{key.lower()}{text}".replace("/", "-") for key, text in shown]  # part of a folder name
        yield Method(
            name=", ".join([name, *(f"{key} {text}" for key, text in shown)]),
            trainer=entry.trainer,
            config=Path(entry.config),
            label="_".join(filter(None, [entry.tag, *words])),
            settings={**(entry.set or {}), **dict(zip(sweep, values, strict=True))},
            swept=tuple(sweep),
            trained=entry.train,
            model_of=entry.model_of,
        )


def _at_epochs(method: Method, epochs: Sequence[int] | None, task: str, where: str) -> list[Method]:
    """Add evaluations at the epochs that a method names. If it evaluates another method's model, they replace it."""
    if epochs is None:
        return [method]
    if task == "fscil":
        raise UserError(f"{method.name} of {inside(where)} has epochs, but sessions are evaluated after their last.")
    if not method.trained:
        raise UserError(f"{method.name} of {inside(where)} has epochs, but it is not trained. Leave one out.")
    evaluations = [
        replace(
            method,
            name=f"{method.name}, epoch {epoch}",
            label="_".join(filter(None, [method.label, f"epoch{epoch}"])),
            model_of=method.model_of or method.name,
            epoch=epoch,
        )
        for epoch in epochs
    ]
    return evaluations if method.model_of else [method, *evaluations]


def _check_uses(method: Method, earlier: Sequence[Method], names: Sequence[str], where: str) -> None:
    """Refuse a method that uses the model of a later or an untrained one, so that no two wait for each other."""
    who = f"The method {method.name} of {inside(where)}"
    if method.model_of and not method.trained:
        raise UserError(f"{who} has both model_of and train: false. Leave out one.")
    owners = {other.name: other for other in earlier}
    for name in method.uses:
        if name not in owners:
            close = nearest(name, names)
            raise UserError(
                f"{who} uses the model of {brief(name)}, which is not an earlier method of the plan.{close}"
            )
        if owners[name].model_of or not owners[name].trained:
            raise UserError(f"{who} uses the model of {name}, which is not trained.")


# ---------------------------------------------------------------------- configuration files


def _datasets(listed: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the wanted datasets, named as --datasets names them: a file by its stem."""
    stems = [Path(name).stem if _is_file(name) else name for name in listed]
    kept = _selected("--datasets", wanted, stems)
    return [name for name, stem in zip(listed, stems, strict=True) if stem in kept]


def _dataset(name: str, here: Path, where: str) -> Dataset:
    path = _find_file("datasets", name, here, where)
    return Dataset(path.stem, path)


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def _find_file(kind: str, name: str, here: Path, who: str) -> Path:
    """Return the configuration file that a shipped name, such as CoOp/vit_b16, or a path stands for."""
    if _is_file(name):
        path = configurations.locate(str(expand_home(name)), here)
    else:
        path = configurations.folder() / kind / f"{name}.yaml"
    if os.path.isfile(path):
        return path
    shipped_names = [known.removeprefix(f"{kind}/").removesuffix(".yaml") for known in configurations.names()]
    raise UserError(
        f"{who} names {shorten(name)}, which is no configuration in {kind}/.{nearest(name, shipped_names)} "
        "Name another, or a .yaml file."
    )
