"""The file of a plan: its keys and their types, checked with pydantic. A mistake is one sentence that names the key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from cocoamix.errors import UserError, brief, known_names, nearest
from cocoamix.io.paths import expand_home
from cocoamix.io.texts import read_yaml

PLANS = Path(__file__).resolve().parent / "plans"
Task = Literal["base2new", "xd", "fscil", "few-shot"]
Subset = Literal["base", "new", "all"]


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _check_repeats(values: list[Any]) -> list[Any]:
    if len(set(values)) < len(values):
        raise ValueError("names a value twice")
    return values


def _check_folder_name(value: str) -> str:
    if "/" in value or "\\" in value or value in (".", ".."):
        raise ValueError("is a path; the name of a folder is expected")
    return value


_FolderName = Annotated[str, AfterValidator(_check_folder_name)]
_T = TypeVar("_T")
_Listed = Annotated[list[_T], BeforeValidator(_as_list), Field(min_length=1)]
_Distinct = Annotated[_Listed[_T], AfterValidator(_check_repeats)]
_Number = Annotated[int, Field(ge=0)]
_Positive = Annotated[int, Field(ge=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class MethodEntry(_Strict):
    """An entry of `methods` in a plan's file."""

    trainer: _FolderName
    config: str
    name: str = ""
    tag: _FolderName = ""
    set: dict[str, Any] | None = None
    sweep: Annotated[dict[str, _Listed[Any]], Field(min_length=1)] | None = None
    train: bool = True
    model_of: str = ""
    epochs: _Distinct[_Positive] | None = None


class PlanFile(_Strict):
    """The content of a plan's file."""

    task: Task
    methods: _Listed[MethodEntry]
    datasets: _Distinct[str]
    seeds: _Distinct[_Number]
    about: str = ""
    source: str | None = None
    shots: _Distinct[_Positive] | None = None
    subsets: _Listed[Subset] | None = None
    partitions: _Distinct[_Number] | None = None
    root: str = ""
    output: str = "output"
    store: str = ""
    set: dict[str, Any] | None = None
    disposable: bool = False


def shipped() -> dict[str, Path]:
    """Return the files of the plans in this package by name."""
    return {path.stem: path for path in sorted(PLANS.glob("*.yaml"))}


def find_plan(name: str) -> Path:
    """Return the file of a shipped plan, or `name` itself if it is a file."""
    path, known = expand_home(name), shipped()
    if name in known:
        return known[name]
    if path.suffix in (".yaml", ".yml") or os.path.isfile(path):
        if not os.path.isfile(path):
            raise UserError(f"There is no plan file {name}.")
        return path
    raise UserError(
        f"There is no plan {brief(name)}.{nearest(name, known)} Shipped: {', '.join(known)}. "
        "Name a plan of your own by its .yaml file."
    )


def read_file(path: Path) -> PlanFile:
    """Read and check the file of a plan."""
    where = place_of(path)
    content = read_yaml(path)
    if not isinstance(content, dict):
        raise UserError(f"{where} should be keys with values, but is {brief(content)}.")
    try:
        entries = PlanFile.model_validate(content)
    except ValidationError as error:
        raise UserError(_sentence(error.errors()[0], where)) from None
    _check_task(entries, where)
    return entries


def place_of(path: Path) -> str:
    """Return the name of a plan for messages, from its file."""
    return f"The plan {path.stem if path.parent == PLANS else path}"


def _sentence(mistake: Mapping[str, Any], where: str) -> str:
    """Return what is wrong with a plan, from pydantic's description of the first mistake."""
    *above, key = mistake["loc"]
    place = where
    if above[:1] == ["methods"] and len(above) > 1:
        place = f"Method {above[1] + 1} of {inside(where)}"
        above = above[2:]
    if mistake["type"] == "extra_forbidden":
        known = MethodEntry.model_fields if place != where else PlanFile.model_fields
        return f"{place} has the key {brief(key)}, which is unknown.{known_names(key, known)}"
    if mistake["type"] == "missing":
        return f"{place} has no key {key}."
    name = ".".join(str(part) for part in (*above, key) if not isinstance(part, int)) or "it"
    text = str(mistake["msg"]).removeprefix("Value error, ")
    names = known_names(mistake["input"], get_args(Task)) if key == "task" else ""
    return f"{name} of {inside(place)} is {brief(mistake['input'])}: {text[:1].lower()}{text[1:]}.{names}"


def inside(where: str) -> str:
    """Return the name of a place with a lower-case first letter, for the middle of a sentence."""
    return where[0].lower() + where[1:]


def _check_task(entries: PlanFile, where: str) -> None:
    """Refuse keys that do not fit the task."""
    task = entries.task
    for key, tasks in (("source", ("xd",)), ("subsets", ("base2new",)), ("partitions", ("base2new",))):
        if getattr(entries, key) is not None and task not in tasks:
            raise UserError(f"{where} has {key}, which only the task {tasks[0]} takes; its task is {task}.")
    if task == "xd" and entries.source is None:
        raise UserError(f"{where} has no key source, the training dataset of the task xd.")
    if task == "fscil" and entries.shots is not None:
        raise UserError(f"{where} has shots, but the sessions of fscil set them: use FSCIL.* in set.")
    if task != "fscil" and entries.shots is None:
        raise UserError(f"{where} has no key shots.")
    if task not in ("few-shot", "fscil") and len(entries.shots or ()) > 1:
        raise UserError(f"shots of {inside(where)} is {entries.shots}; the task {task} takes one number.")
    if entries.subsets is not None and "base" not in entries.subsets:
        raise UserError(f"subsets of {inside(where)} leaves out base, which every training run evaluates.")
