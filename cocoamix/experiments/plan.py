"""Plans: methods, datasets, seeds and a task.

`Method` and `Plan` have the keys of a plan's YAML file; pydantic checks their types.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from cocoamix.config import shipped as configurations
from cocoamix.config.partition import KEY as PARTITION
from cocoamix.errors import UserError, brief, check_choice, known_names, nearest
from cocoamix.io.paths import expand_home
from cocoamix.io.texts import read_yaml

PLANS = Path(__file__).resolve().parent / "plans"
_TAKEN = {  # keys that only some tasks take
    "base2new": ("shots", "subsets", "partitions"),
    "xd": ("shots", "source"),
    "few-shot": ("shots",),
    "fscil": (),
}
_NEEDED = ("shots", "source")  # by the tasks that take them


def _as_tuple(value: Any) -> Any:
    """Return the values of a key, which may stand without a list."""
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(values))


_T = TypeVar("_T")
_Listed = Annotated[tuple[_T, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
_Distinct = Annotated[_Listed[_T], AfterValidator(_once)]
_Number = Annotated[int, Field(ge=0, strict=True)]
_Positive = Annotated[int, Field(ge=1, strict=True)]
_FolderName = Annotated[str, Field(pattern=r"^[^/\\]*$")]


@dataclass(frozen=True)
class Method:
    """A trainer under a configuration: a row of the table.

    An entry of a plan's file may have several swept values and epochs; `variants` returns its methods.
    """

    trainer: _FolderName
    config: Path  # a file, or the name of a shipped configuration
    name: str = ""
    tag: _FolderName = ""
    set: dict[str, Any] = field(default_factory=dict)
    sweep: dict[str, _Listed[Any]] = field(default_factory=dict)  # values by key; in a variant, `set` has one of each
    train: bool = True  # an untrained method depends neither on the seed nor on the shots
    model_of: str = ""  # the method whose trained model this one evaluates with its own settings
    epochs: _Distinct[_Positive] = ()  # of that model's checkpoints; a variant has at most one
    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        """Refuse keys that contradict each other."""
        if not self.train and (self.model_of or self.epochs):
            raise ValueError("train: false goes neither with model_of nor with epochs")

    @property
    def label(self) -> str:
        """The name of its folder in CoOp's layout."""
        return "_".join(filter(None, [self.config.stem, self.tag]))

    @property
    def epoch(self) -> int | None:
        """The epoch of the checkpoint that a variant evaluates; None is the last one."""
        return self.epochs[0] if self.epochs else None

    @property
    def uses(self) -> list[str]:
        """The methods whose models it uses."""
        return [*models_in(self.set), *filter(None, [self.model_of])]

    def variants(self) -> Iterator[Method]:
        """Yield a method for each combination of swept values, and evaluations of its model at the epochs.

        If it evaluates another method's model, only those at the epochs.
        """
        for values in itertools.product(*self.sweep.values()):
            texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
            shown = [(key.split(".")[-1], text) for key, text in zip(self.sweep, texts, strict=True)]
            method = replace(
                self,
                name=", ".join([self.name or self.trainer, *(f"{key} {text}" for key, text in shown)]),
                tag="_".join([self.tag, *(f"{key.lower()}{text}".replace("/", "-") for key, text in shown)]).strip("_"),
                set={**self.set, **dict(zip(self.sweep, values, strict=True))},
                epochs=(),
            )
            if not (self.model_of and self.epochs):
                yield method
            for epoch in self.epochs:
                name, tag = f"{method.name}, epoch {epoch}", f"{method.tag}_epoch{epoch}".strip("_")
                model_of = method.model_of or method.name
                yield replace(method, name=name, tag=tag, model_of=model_of, epochs=(epoch,))


@dataclass(frozen=True)
class Plan:
    """What to run, and where its data and output are."""

    task: Literal["base2new", "xd", "few-shot", "fscil"]
    methods: _Listed[Method]
    datasets: _Distinct[Path]  # configuration files
    seeds: _Distinct[_Number]
    about: str = ""
    source: Path | None = None  # xd: the training dataset
    shots: _Distinct[_Positive] = ()
    subsets: _Distinct[Literal["base", "new", "all"]] = ()  # base2new: those that are evaluated; empty: base and new
    partitions: _Distinct[_Number] = ()  # base2new: K of the partitions random:K; empty is CoOp's
    root: str = ""  # the data root
    output: Path = Path("output")
    store: str = ""  # CACHE.DIR of every run, relative to `output`; empty is the user's own
    set: dict[str, Any] = field(default_factory=dict)
    disposable: bool = False  # runs whose results were made by other code are repeated; the old results are deleted
    # These are no keys of the file.
    file: Path = Path()
    overrides: dict[str, Any] = field(default_factory=dict)  # override the plan and its methods
    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        """Refuse keys that do not fit each other."""
        for key in ("shots", "source", "subsets", "partitions"):
            is_taken, is_set = key in _TAKEN[self.task], bool(getattr(self, key))
            if is_set and not is_taken:
                raise UserError(f"The key {key} of {self.where} does not fit its task, {self.task}.")
            if is_taken and key in _NEEDED and not is_set:
                raise UserError(f"The task {self.task} of {self.where} needs the key {key}.")
        if self.task in ("base2new", "xd") and len(self.shots) > 1:
            raise UserError(f"shots of {self.where} is {list(self.shots)}; the task {self.task} takes one number.")
        if self.subsets and "base" not in self.subsets:
            raise UserError(f"subsets of {self.where} leaves out base, which every training run evaluates.")
        if self.task == "fscil" and any(method.epochs for method in self.methods):
            raise UserError(f"{self.where} has a method with epochs, but sessions are evaluated after their last.")
        self._check_settings()

    def _check_settings(self) -> None:
        """Refuse settings that would undo what the plan sets itself."""
        if models_in([self.set, self.overrides]):
            raise UserError(f"{{run:...}} in {self.where} or in --set belongs in the set of a method.")
        settings = [self.overrides, self.set, *(method.set for method in self.methods)]
        swept = {key for method in self.methods for key in method.sweep}.intersection(self.overrides)
        if self.partitions and any(PARTITION in part for part in settings):
            swept.add(PARTITION)
        if swept:
            raise UserError(f"{min(swept)} may not be set, because {self.where} has several values of it already.")

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.file.stem

    @property
    def where(self) -> str:
        """The name of the plan in messages."""
        return f"the plan {self.name if self.file.parent == PLANS else self.file}"


def models_in(value: Any) -> list[str]:
    """Return the methods that `{run:NAME}` in a value, or in the values of a list or mapping, refers to."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return [name for inner in value for name in models_in(inner)]
    return [part.split("}")[0] for part in value.split("{run:")[1:]] if isinstance(value, str) else []


# ---------------------------------------------------------------------- reading


def shipped() -> dict[str, Path]:
    """Return the files of the plans in this package by name."""
    return {path.stem: path for path in sorted(PLANS.glob("*.yaml"))}


def load_plan(
    name: str,
    methods: Sequence[str] = (),
    datasets: Sequence[str] = (),
    seeds: Sequence[int] = (),
    partitions: Sequence[int] = (),
) -> Plan:
    """Read and check a plan, and find its configuration files.

    The other arguments select a part of the plan; empty ones select everything. What is not selected may have missing
    configurations and trainers.

    Args:
        name: The name of a shipped plan, or the path of a YAML file.
        methods: The names of methods to keep, with those whose models they use.
        datasets: The names of datasets to keep.
        seeds: The seeds to keep.
        partitions: The numbers of partitions to keep.
    """
    plan = _read(name)
    every = [variant for method in plan.methods for variant in method.variants()]
    _check_methods(every, plan.where)
    kept = set(_selected("--methods", methods, [method.name for method in every]))
    for method in reversed(every):  # a method uses only earlier ones
        if method.name in kept:
            kept.update(method.uses)
    chosen = _selected("--datasets", datasets, [dataset.stem for dataset in plan.datasets])
    return replace(
        plan,
        methods=tuple(replace(one, config=_find_config(one, plan)) for one in every if one.name in kept),
        datasets=tuple(_find_file("datasets", one, plan) for one in plan.datasets if one.stem in chosen),
        source=_find_file("datasets", plan.source, plan) if plan.source else None,
        seeds=_selected("--seeds", seeds, plan.seeds),
        partitions=_selected("--partitions", partitions, plan.partitions),
        output=expand_home(plan.output),
    )


def _read(name: str) -> Plan:
    """Read a plan, with methods that stand for several and configurations that are not files yet."""
    path = shipped().get(name) or expand_home(name)
    if not os.path.isfile(path):
        raise UserError(f"There is no plan {name}, neither shipped nor as a file.{known_names(name, shipped())}")
    content, keys = read_yaml(path), [key.name for key in fields(Plan)][:-2]
    for key in content if isinstance(content, dict) else [content]:
        check_choice(f"A key of the plan {path}", key, keys)
    try:
        return TypeAdapter(Plan).validate_python({**content, "file": path})
    except ValidationError as error:
        mistake = error.errors()[0]
    place, names = ".".join(map(str, mistake["loc"])), [key.name for key in fields(Method)]
    close = nearest(str(mistake["loc"][-1]), names) if mistake["type"] == "unexpected_keyword_argument" else ""
    raise UserError(f"{place} of the plan {path} cannot be {brief(mistake['input'])}: {mistake['msg']}.{close}")


def _selected(flag: str, wanted: Sequence[_T], there: Sequence[_T]) -> tuple[_T, ...]:
    """Return the values that a flag of the command line selects; without one, all."""
    for value in wanted:
        if value not in there:
            raise UserError(f"{flag} names {value}, which is not in the plan.{known_names(str(value), there)}")
    return tuple(value for value in there if value in wanted or not wanted)


def _check_methods(methods: Sequence[Method], where: str) -> None:
    """Refuse methods that share a name or a folder, or use models that are not trained before."""
    earlier: dict[str, Method] = {}
    for method in methods:
        trained = [name for name, other in earlier.items() if other.train and not other.model_of]
        for name in method.uses:
            if name not in trained:
                close = nearest(name, trained)
                raise UserError(f"{method.name} of {where} uses the model of {name}, not trained before it.{close}")
        for other in earlier.values():
            if method.name == other.name or (method.trainer, method.label) == (other.trainer, other.label):
                raise UserError(f"{other.name} and {method.name} of {where} share a name or a folder: give one a tag.")
        earlier[method.name] = method


def _find_config(method: Method, plan: Plan) -> Path:
    """Return the configuration file of a method; a plain name is one of its trainer's."""
    return _find_file("trainers" if len(method.config.parts) > 1 else f"trainers/{method.trainer}", method.config, plan)


def _find_file(folder: str, name: Path, plan: Plan) -> Path:
    """Return a configuration file from its path, or from its name below a folder of the shipped ones."""
    if name.suffix in (".yaml", ".yml"):
        file = configurations.locate(str(expand_home(name)), plan.file.parent)
    else:
        file = configurations.folder() / folder / f"{name}.yaml"
    if not os.path.isfile(file):
        close = nearest(f"{folder}/{name}", [known.removesuffix(".yaml") for known in configurations.names()])
        raise UserError(f"{plan.where} names {name}, which is no configuration in {folder}/ and no file.{close}")
    return file
