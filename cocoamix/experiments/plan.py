"""Plans: methods, datasets, seeds and a task. `Method` and `Plan` have the keys of a plan's YAML file."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from cocoamix.config import shipped as configurations
from cocoamix.config.partition import KEY as PARTITION
from cocoamix.errors import UserError, brief, known_names, nearest
from cocoamix.io.paths import expand_home
from cocoamix.io.texts import read_yaml

SHOTS, SUBSET = "DATASET.NUM_SHOTS", "DATASET.SUBSAMPLE_CLASSES"
MODEL = re.compile(r"\{run:([^}]*)\}")  # in a value: the folder of that method's model
PLANS = Path(__file__).resolve().parent / "plans"
_KEYS = {  # those that only some tasks take; shots and source are needed there
    "base2new": ("shots", "subsets", "partitions"),
    "xd": ("shots", "source"),
    "few-shot": ("shots",),
    "fscil": (),
}


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """Return the values of a key, each once. One value may stand without a list."""
    return tuple({repr(one): one for one in (value if isinstance(value, (list, tuple)) else [value])}.values())


_T = TypeVar("_T")
_Listed = Annotated[tuple[_T, ...], BeforeValidator(_as_tuple), Field(min_length=1)]
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
    epochs: _Listed[PositiveInt] = ()  # of that model's checkpoints; a variant has at most one
    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def label(self) -> str:
        """The name of its folder in CoOp's layout."""
        return "_".join(filter(None, [self.config.stem, self.tag]))

    @property
    def uses(self) -> list[str]:
        """The methods whose models it uses."""
        return [*MODEL.findall(str(self.set)), *filter(None, [self.model_of])]

    def variants(self) -> Iterator[Method]:
        """Yield a method for each combination of swept values, and evaluations of its model at the epochs.

        If it evaluates another method's model, only those at the epochs.
        """
        for values in itertools.product(*self.sweep.values()):
            swept = dict(zip(self.sweep, values, strict=True))
            method = replace(self, name=self.name or self.trainer, set={**self.set, **swept}, epochs=())
            for key, value in swept.items():
                short, text = key.split(".")[-1], f"{value:g}" if isinstance(value, float) else str(value)
                method = method._called(f"{short} {text}", f"{short.lower()}{text}".replace("/", "-"))
            if not (self.model_of and self.epochs):
                yield method
            for epoch in self.epochs:
                evaluation = method._called(f"epoch {epoch}", f"epoch{epoch}")
                yield replace(evaluation, model_of=method.model_of or method.name, epochs=(epoch,))

    def _called(self, name: str, tag: str) -> Method:
        return replace(self, name=f"{self.name}, {name}", tag=f"{self.tag}_{tag}".strip("_"))


@dataclass(frozen=True)
class Plan:
    """What to run, and where its data and output are."""

    task: Literal["base2new", "xd", "few-shot", "fscil"]
    methods: _Listed[Method]
    datasets: _Listed[Path]  # configuration files
    seeds: _Listed[NonNegativeInt]
    about: str = ""
    source: Path | None = None  # xd: the training dataset
    shots: _Listed[PositiveInt] = ()
    subsets: _Listed[Literal["base", "new", "all"]] = ()  # base2new: those that are evaluated besides base; empty: new
    partitions: _Listed[NonNegativeInt] = ()  # base2new: K of the partitions random:K; empty is CoOp's
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
        """Refuse keys that do not fit each other, or would undo what the plan sets itself."""
        for key, problem in self._problems():
            raise UserError(f"{key} of {self.where} {problem}.")

    def _problems(self) -> Iterator[tuple[str, str]]:
        for key in ("shots", "source", "subsets", "partitions"):
            is_needed = key in ("shots", "source") and key in _KEYS[self.task]
            if getattr(self, key) and key not in _KEYS[self.task]:
                yield key, f"does not fit its task, {self.task}"
            elif is_needed and not getattr(self, key):
                yield key, f"is missing; the task {self.task} needs it"
        if self.task != "few-shot" and len(self.shots) > 1:
            yield "shots", f"is {list(self.shots)}; the task {self.task} takes one number"
        if self.task == "fscil" and any(method.epochs for method in self.methods):
            yield "epochs", "cannot be evaluated: sessions are evaluated after their last epoch"
        own = {SHOTS: self.shots, SUBSET: self.task == "base2new", PARTITION: self.partitions}
        changed = [self.overrides, self.set, *(method.set for method in self.methods)]
        fixed = {key for key, values in own.items() if values and any(key in settings for settings in changed)}
        fixed |= {key for method in self.methods for key in method.sweep}.intersection(self.overrides)
        for key in sorted(fixed):
            yield key, "may not be set: the plan sets it itself"

    @property
    def name(self) -> str:
        """The name of its file without the suffix."""
        return self.file.stem

    @property
    def where(self) -> str:
        """The name of the plan in messages."""
        return f"the plan {self.file.name}"


# ---------------------------------------------------------------------- reading


def shipped() -> dict[str, Path]:
    """Return the files of the plans in this package by name."""
    return {path.stem: path for path in sorted(PLANS.glob("*.yaml"))}


def read_file(name: str) -> Plan:
    """Read a plan, with methods that stand for several and configurations that are not files yet."""
    path = shipped().get(name) or expand_home(name)
    if not os.path.isfile(path):
        raise UserError(f"There is no plan {name}, neither shipped nor as a file.{known_names(name, shipped())}")
    content = read_yaml(path)
    try:
        own = {**content, "file": path, "overrides": {}} if isinstance(content, dict) else content
        return TypeAdapter(Plan).validate_python(own)
    except ValidationError as error:
        # An unknown key first: because of it, another one may be missing.
        mistake = min(error.errors(), key=lambda mistake: mistake["type"] != "unexpected_keyword_argument")
    place = ".".join(map(str, mistake["loc"])) or "the content"
    is_unknown = mistake["type"] == "unexpected_keyword_argument"
    names = [key.name for kind in (Plan, Method) for key in fields(kind)] if is_unknown else []
    close = nearest(place.split(".")[-1], names)
    raise UserError(f"{place} of the plan {path} cannot be {brief(mistake['input'])}: {mistake['msg']}.{close}")


def load_plan(
    name: str,
    methods: Sequence[str] = (),
    datasets: Sequence[str] = (),
    seeds: Sequence[int] = (),
    partitions: Sequence[int] = (),
) -> Plan:
    """Read and check a plan, shipped or in a YAML file, and find its configuration files.

    The other arguments select a part of it, with the methods whose models these use; empty ones select everything.
    What is not selected may have missing configurations and trainers.
    """
    plan = read_file(name)
    every = [variant for method in plan.methods for variant in method.variants()]
    _check_methods(every, plan.where)
    kept = {*_select("--methods", methods, [method.name for method in every])}
    for method in reversed(every):  # a method uses only earlier ones
        if method.name in kept:
            kept.update(method.uses)
    chosen = _select("--datasets", datasets, [dataset.stem for dataset in plan.datasets])
    return replace(
        plan,
        methods=tuple(
            replace(method, config=_find(f"trainers/{method.trainer}", method.config, plan))
            for method in every
            if method.name in kept
        ),
        datasets=tuple(_find("datasets", dataset, plan) for dataset in plan.datasets if dataset.stem in chosen),
        source=_find("datasets", plan.source, plan) if plan.source else None,
        seeds=_select("--seeds", seeds, plan.seeds),
        partitions=_select("--partitions", partitions, plan.partitions),
        output=expand_home(plan.output),
    )


def _select(flag: str, wanted: Sequence[_T], there: Sequence[_T]) -> tuple[_T, ...]:
    """Return the values that a flag of the command line selects; without one, all."""
    for value in wanted:
        if value not in there:
            raise UserError(f"{flag} names {value}, which is not in the plan.{known_names(str(value), there)}")
    return tuple(value for value in there if value in wanted or not wanted)


def _check_methods(methods: Sequence[Method], where: str) -> None:
    """Refuse methods that share a name or a folder, or use models that are not trained before."""
    for number, method in enumerate(methods):
        trained = [other.name for other in methods[:number] if other.train and not other.model_of]
        for name in method.uses:
            if name not in trained:
                close = nearest(name, trained)
                raise UserError(f"{method.name} of {where} uses the model of {name}, not trained before it.{close}")
        for other in methods[:number]:
            if method.name == other.name or (method.trainer, method.label) == (other.trainer, other.label):
                raise UserError(f"{other.name} and {method.name} of {where} share a name or a folder: give one a tag.")


def _find(folder: str, name: Path, plan: Plan) -> Path:
    """Return a configuration file from its path, or from its name below a folder of the shipped ones."""
    if name.suffix not in (".yaml", ".yml"):
        own = f"{name}.yaml" if len(name.parts) > 1 else f"{folder}/{name}.yaml"
        return configurations.locate(configurations.PREFIX + own)
    file = configurations.locate(str(expand_home(name)), plan.file.parent)
    if not os.path.isfile(file):
        raise UserError(f"{plan.where} names {name}, but there is no file {file}.")
    return file
