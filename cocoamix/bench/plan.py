"""Plans: YAML files that name methods, datasets, seeds and a task. Every key is checked when a plan is read."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from cocoamix.config import shipped as configurations
from cocoamix.config.allowed import kind
from cocoamix.config.partition import KEY as PARTITION
from cocoamix.errors import UserError, brief, check_choice, known_names, nearest, shorten, some_of
from cocoamix.io.paths import expand_home
from cocoamix.io.texts import read_yaml

PLANS = Path(__file__).resolve().parent / "plans"
TASKS = ("base2new", "xd", "fscil", "few-shot")
DEFAULT_OUTPUT = "output"
SUBSETS = ("base", "new", "all")
_KEYS = (
    *("about", "task", "methods", "datasets", "source", "seeds", "shots", "subsets", "partitions"),
    *("root", "output", "store", "set"),
)
_DISPOSABLE = "disposable"
_METHOD_KEYS = ("name", "trainer", "config", "tag", "set", "sweep", "train", "model_of", "epochs")

Options = tuple[tuple[str, Any], ...]  # KEY VALUE pairs of train.py


@dataclass(frozen=True)
class Method:
    """A trainer under a configuration: a row of the table."""

    name: str
    trainer: str
    config: Path  # configuration file
    label: str  # name of its folder in CoOp's layout
    options: Options = ()
    swept: tuple[str, ...] = ()  # keys of a sweep; the label has their values
    trained: bool = True  # an untrained method depends neither on the seed nor on the shots
    model_of: str = ""  # the method whose trained model this one evaluates with its own options
    epoch: int | None = None  # of that model's checkpoint; None is the last one


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
    options: Options = ()
    overrides: Options = ()  # from the command line; they override the plan and its methods
    where: str = "the plan"  # in messages
    disposable: bool = False  # runs whose results were made by other code are repeated; the old results are deleted

    def method(self, name: str) -> Method:
        """Return a method by its name."""
        return next(one for one in self.methods if one.name == name)


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


def describe(name: str) -> str:
    """Return the description of a plan."""
    return _Mapping(read_yaml(find_plan(name)), f"The plan {name}").text("about", "")


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
    content = _Mapping(read_yaml(path), f"The plan {path}" if path.parent != PLANS else f"The plan {name}")
    content.check_keys((*_KEYS, _DISPOSABLE), needed=("task", "methods", "datasets", "seeds"))
    task = content.text("task")
    check_choice(f"task of {path.name}", task, TASKS)
    here = path.parent
    plan = Plan(
        name=path.stem,
        about=content.text("about", ""),
        task=task,
        methods=tuple(_methods(content, here, methods, task)),
        datasets=tuple(_datasets(content, here, datasets)),
        seeds=tuple(_seeds(content, seeds)),
        shots=tuple(_shots(content, task)),
        subsets=tuple(_subsets(content, task)),
        partitions=tuple(_partitions(content, task, partitions)),
        output=expand_home(content.text("output", DEFAULT_OUTPUT)),
        root=content.text("root", ""),
        store=content.text("store", ""),
        options=_options(content, "set"),
        where=_inside(content.where),
        disposable=content.flag(_DISPOSABLE, False),
    )
    if task == "xd":
        plan = replace(plan, source=_dataset(content.text("source"), here, content.where))
    elif "source" in content.keys:
        raise UserError(f"{content.where} has a source, which only the task xd trains on; its task is {task}.")
    _check_models(plan.options, content.where)
    _check_partitions(plan, [*plan.options, *(pair for one in plan.methods for pair in one.options)], content.where)
    _check_folders(plan, content.where)
    return plan


# ---------------------------------------------------------------------- reading


class _Mapping:
    """A mapping in a YAML file. Its checks name the place in the file."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, Mapping):
            raise UserError(f"{where} should be keys with values, but is {kind(content)}.")
        for key in content:
            if not isinstance(key, str):
                raise UserError(f"{where} has the key {brief(key)}, which is {kind(key)}; a string is expected.")
        self.keys, self.where = dict(content), where

    def check_keys(self, known: Sequence[str], needed: Sequence[str]) -> None:
        for key in self.keys:
            if key not in known:
                raise UserError(f"{self.where} has the key {brief(key)}, which is unknown.{known_names(key, known)}")
        for key in needed:
            if key not in self.keys:
                raise UserError(f"{self.where} has no key {key}.")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.keys.get(key, default)
        if value is None:
            raise UserError(f"{self.where} has no key {key}.")
        if not isinstance(value, str):
            what = f"{key} of {_inside(self.where)}"
            raise UserError(f"{what} is {brief(value)}, which is {kind(value)}; a string is expected.")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.keys.get(key, default)
        if not isinstance(value, bool):
            raise UserError(f"{key} of {_inside(self.where)} is {brief(value)}; true or false is expected.")
        return value

    def sequence(self, key: str) -> list[Any]:
        value = self.keys.get(key)
        listed = value if isinstance(value, list) else [value]
        if not listed or value is None:
            raise UserError(f"{key} of {_inside(self.where)} is empty; name at least one.")
        return listed


def _inside(where: str) -> str:
    """Return the name of a place with a lower-case first letter, for the middle of a sentence."""
    return where[0].lower() + where[1:]


# ---------------------------------------------------------------------- methods


class _Draft(NamedTuple):
    """A method whose files have not been looked up yet."""

    entry: _Mapping
    name: str
    options: Options
    tag: str
    model_of: str
    swept: tuple[str, ...] = ()
    epoch: int | None = None


def _methods(content: _Mapping, here: Path, wanted: Sequence[str], task: str) -> list[Method]:
    drafts: list[_Draft] = []
    for number, one in enumerate(content.sequence("methods"), 1):
        entry = _Mapping(one, f"Method {number} of {_inside(content.where)}")
        entry.check_keys(_METHOD_KEYS, needed=("trainer", "config"))
        if task == "fscil" and "epochs" in entry.keys:
            raise UserError(
                f"{entry.where} has epochs, but the sessions of fscil are evaluated after their last epoch."
            )
        drafts += [one for variant in _variants(entry) for one in _at_epochs(variant)]
    names = [draft.name for draft in drafts]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{content.where} has two methods named {name}. Give them different names.")
    _check_wanted("--methods", wanted, names)
    kept = _with_models(drafts, list(wanted) or names, content.where)
    return [_method(draft, here) for draft in drafts if draft.name in kept]


def _variants(entry: _Mapping) -> list[_Draft]:
    """Return a draft of a method, or one for each combination of values in its sweep."""
    trainer, options = _folder_name(entry, "trainer"), _options(entry, "set")
    name, tag, model_of = entry.text("name", trainer), _folder_name(entry, "tag", ""), entry.text("model_of", "")
    sweep = entry.keys.get("sweep")
    if sweep is None:
        return [_Draft(entry, name, options, tag, model_of)]
    swept = _Mapping(sweep, f"The sweep of {name}")
    if not swept.keys:
        raise UserError(f"The sweep of {name} is empty; name a key and its values, or leave it out.")
    pairs = [[(key, value) for value in swept.sequence(key)] for key in swept.keys]
    variants = []
    for chosen in itertools.product(*pairs):
        pairs_shown = [(key.split(".")[-1], _show(value)) for key, value in chosen]
        words = [f"{key.lower()}{value}".replace("/", "-") for key, value in pairs_shown]  # part of a folder name
        shown = ", ".join(f"{key} {value}" for key, value in pairs_shown)
        full_tag = "_".join(filter(None, [tag, *words]))
        full_name, all_options = f"{name}, {shown}", (*options, *chosen)
        variants.append(_Draft(entry, full_name, all_options, full_tag, model_of, tuple(swept.keys)))
    return variants


def _at_epochs(draft: _Draft) -> list[_Draft]:
    """Add evaluations at the epochs that a method names. If it evaluates another method's model, they replace it."""
    if "epochs" not in draft.entry.keys:
        return [draft]
    if not draft.entry.flag("train", True):
        raise UserError(f"{draft.entry.where} has epochs, but it is not trained. Leave out epochs or train: false.")
    evaluations = [
        draft._replace(
            name=f"{draft.name}, epoch {epoch}",
            tag="_".join(filter(None, [draft.tag, f"epoch{epoch}"])),
            model_of=draft.model_of or draft.name,
            epoch=epoch,
        )
        for epoch in _numbers(draft.entry, "epochs", least=1)
    ]
    return evaluations if draft.model_of else [draft, *evaluations]


def _folder_name(entry: _Mapping, key: str, default: str | None = None) -> str:
    """Return a string that becomes part of a folder name, so it must not be a path."""
    value = entry.text(key, default)
    if "/" in value or "\\" in value or value in (".", ".."):
        what = f"{key} of {_inside(entry.where)}"
        raise UserError(f"{what} is {brief(value)}; the name of a folder is expected, not a path.")
    return value


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with_models(drafts: Sequence[_Draft], wanted: list[str], where: str) -> set[str]:
    """Return the wanted methods and those whose models they use."""
    without = {draft.name for draft in drafts if draft.model_of or draft.entry.keys.get("train") is False}
    names = [draft.name for draft in drafts]
    uses: dict[str, list[str]] = {}
    for draft in drafts:
        other = draft.model_of
        uses[draft.name] = models_in(draft.options) + ([other] if other else [])
        if other and not draft.entry.flag("train", True):
            raise UserError(
                f"The method {draft.name} of {_inside(where)} has both model_of and train: false. Leave out one."
            )
        for one in uses[draft.name]:
            # It must be an earlier one, so that no two methods wait for each other.
            if one not in names[: names.index(draft.name)]:
                raise UserError(
                    f"The method {draft.name} of {_inside(where)} uses the model of {brief(one)}, "
                    f"which is not an earlier method of the plan.{nearest(one, names)}"
                )
            if one in without:
                raise UserError(
                    f"The method {draft.name} of {_inside(where)} uses the model of {one}, which is not trained."
                )
    kept: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in kept:
            kept.add(name)
            wanted += uses[name]
    return kept


def override(plan: Plan, options: Options) -> Plan:
    """Return a plan with options that override those of the plan and its methods."""
    _check_models(options, "--set")
    _check_partitions(plan, options, f"--set, with the plan {plan.name},")
    for key, _ in options:
        for method in plan.methods:
            if key in method.swept:
                raise UserError(
                    f"--set {key} would undo the sweep of {key} in the plan {plan.name}. Choose among its methods "
                    f"with --methods, such as {method.name!r}."
                )
    return replace(plan, overrides=options)


def models_in(options: Options) -> list[str]:
    """Return the methods that `{run:NAME}` in option values refers to."""
    return [part.split("}")[0] for _, value in options for part in str(value).split("{run:")[1:]]


def _method(draft: _Draft, here: Path) -> Method:
    entry, name, options, tag, model_of, swept, epoch = draft
    trainer = entry.text("trainer")
    file = _trainer_file(entry.text("config"), trainer, here, name)
    label = f"{file.stem}_{tag}" if tag else file.stem
    return Method(name, trainer, file, label, options, swept, entry.flag("train", True), model_of, epoch)


def _trainer_file(config: str, trainer: str, here: Path, method: str) -> Path:
    """Return the file that `vit_b16`, `CoOp/vit_b16` or a path ending in .yaml names."""
    if config.endswith((".yaml", ".yml")):
        path = configurations.locate(str(expand_home(config)), here)
        if not os.path.isfile(path):
            raise UserError(f"The configuration of the method {shorten(method)}, {path}, does not exist.")
        return path
    name = config if "/" in config else f"{trainer}/{config}"
    path = configurations.folder() / "trainers" / f"{name}.yaml"
    if not os.path.isfile(path):
        known = [one.removeprefix("trainers/").removesuffix(".yaml") for one in configurations.names()]
        raise UserError(
            f"There is no configuration {shorten(name)} for the method {shorten(method)}.{nearest(name, known)} "
            "Choose other methods with --methods, or name a .yaml file."
        )
    return path


# ---------------------------------------------------------------------- datasets, seeds, shots, options


def _datasets(content: _Mapping, here: Path, wanted: Sequence[str]) -> list[Dataset]:
    listed = [str(one) for one in content.sequence("datasets")]
    names = [Path(one).stem for one in listed]
    _check_wanted("--datasets", wanted, names)
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{content.where} names the dataset {name} twice.")
    return [
        _dataset(one, here, content.where) for one, name in zip(listed, names, strict=True) if name in (wanted or names)
    ]


def _dataset(name: str, here: Path, where: str) -> Dataset:
    if name.endswith((".yaml", ".yml")):
        path = configurations.locate(str(expand_home(name)), here)
    else:
        path = configurations.folder() / "datasets" / f"{name}.yaml"
    if not os.path.isfile(path):
        known = [Path(one).stem for one in configurations.names() if one.startswith("datasets/")]
        raise UserError(f"{where} names the dataset {shorten(name)}, which has no configuration.{nearest(name, known)}")
    return Dataset(path.stem, path)


def _seeds(content: _Mapping, wanted: Sequence[int]) -> list[int]:
    seeds = _numbers(content, "seeds", least=0)
    _check_wanted("--seeds", [str(one) for one in wanted], [str(one) for one in seeds])
    return [seed for seed in seeds if seed in wanted or not wanted]


def _shots(content: _Mapping, task: str) -> list[int]:
    if task == "fscil":
        if "shots" in content.keys:
            raise UserError(f"{content.where} has shots, but the sessions of fscil set them: use FSCIL.* in set.")
        return [0]
    shots = _numbers(content, "shots", least=1)
    if task != "few-shot" and len(shots) > 1:
        raise UserError(f"shots of {_inside(content.where)} is {shots}; the task {task} takes one number.")
    return shots


def _subsets(content: _Mapping, task: str) -> list[str]:
    """Return the label spaces of base-to-new. Base is always among them, because the training run evaluates it."""
    if "subsets" not in content.keys:
        return ["base", "new"]
    if task != "base2new":
        raise UserError(f"{content.where} has subsets, which only the task base2new takes; its task is {task}.")
    wanted = content.sequence("subsets")
    for one in wanted:
        check_choice(f"subsets of {_inside(content.where)}", one, SUBSETS)
    if "base" not in wanted:
        raise UserError(f"subsets of {_inside(content.where)} leaves out base, which every training run evaluates.")
    return [one for one in SUBSETS if one in wanted]


def _partitions(content: _Mapping, task: str, wanted: Sequence[int]) -> list[int]:
    """Return the numbers of the random partitions of the classes."""
    if "partitions" not in content.keys:
        if wanted:
            raise UserError(f"--partitions is for plans that have partitions, but {_inside(content.where)} has none.")
        return []
    if task != "base2new":
        raise UserError(f"{content.where} has partitions, which only the task base2new takes; its task is {task}.")
    numbers = _numbers(content, "partitions", least=0)
    _check_wanted("--partitions", [str(one) for one in wanted], [str(one) for one in numbers])
    return [number for number in numbers if number in wanted or not wanted]


def _numbers(content: _Mapping, key: str, least: int) -> list[int]:
    values = content.sequence(key)
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UserError(
                f"{key} of {_inside(content.where)} holds {brief(value)}; whole numbers from {least} up are expected."
            )
    if len(set(values)) < len(values):
        raise UserError(f"{key} of {_inside(content.where)} names a number twice: {brief(values)}.")
    return values


def _options(content: _Mapping, key: str) -> Options:
    given = content.keys.get(key)
    return (
        tuple(_Mapping(given, f"The key {key} of {_inside(content.where)}").keys.items()) if given is not None else ()
    )


def _check_wanted(flag: str, wanted: Sequence[str], there: Sequence[str]) -> None:
    for name in wanted:
        if name not in there:
            raise UserError(
                f"{flag} names {name}, which is not in the plan.{nearest(name, there)} It has: {some_of(there)}."
            )


def _check_models(options: Options, where: str) -> None:
    """Refuse {run:NAME} outside the options of a method."""
    if models_in(options):
        raise UserError(f"{where} has {{run:...}} in a value of set; it belongs in the set of a method.")


def _check_partitions(plan: Plan, options: Iterable[tuple[str, Any]], where: str) -> None:
    """Refuse a partition that is set twice, because runs would not match the partition in their folder names."""
    if plan.partitions and any(key == PARTITION for key, _ in options):
        raise UserError(f"{where} sets {PARTITION}, which the plan's key partitions sets already. Leave out one.")


def _check_folders(plan: Plan, where: str) -> None:
    """Refuse two methods that would write to the same folder."""
    folders: dict[tuple[str, str], str] = {}
    for method in plan.methods:
        other = folders.setdefault((method.trainer, method.label), method.name)
        if other != method.name:
            raise UserError(
                f"The methods {other} and {method.name} of {_inside(where)} would write to the same folder, "
                f"{method.trainer}/{method.label}. Give one of them a tag."
            )
