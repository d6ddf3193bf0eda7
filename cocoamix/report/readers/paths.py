"""Read the path of a run, in CoOp's output layout or that of code derived from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

_SEED = re.compile(r"^seed[_-]?(\d+)$", re.IGNORECASE)
_SUBSET = re.compile(r"^(train|test|eval)_(base|new|novel|all)$", re.IGNORECASE)
_SHOTS = re.compile(r"^shots?_?(\d+)(?:_(.+))?$", re.IGNORECASE)  # shots_16, shots16, shots_16_8.0
_CONFIG_SHOTS = re.compile(r"^(.+)_(?:(\d+)shots?|shots_(\d+))$", re.IGNORECASE)  # vit_b16_16shots
_EVALUATION = re.compile(r"^evaluation$", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """The facts that the path of a run states. A fact that it does not state is None or ""."""

    task: str = ""  # base2new, transfer, few-shot
    subset: str = ""  # base, new, all
    dataset: str = ""
    trainer: str = ""
    config: str = ""
    variant: str = ""  # whatever else distinguishes the run: nctx16_cscFalse_ctpend, KgCoOp's weight
    shots: int | None = None
    seed: int | None = None
    rest: tuple[str, ...] = field(default=(), compare=False)  # folders above, of unknown meaning


def read_path(parts: Sequence[str]) -> Place:
    """Return the facts in the path of a run of any known code base."""
    folders = list(parts)
    seed = None
    if folders and (match := _SEED.match(folders[-1])):
        seed = int(match.group(1))
        folders.pop()
    readers = (_base_to_new, _transfer, _sessions, _few_shot, _zero_shot)
    place = next((found for reader in readers if (found := reader(folders))), None)
    return replace(place or Place(rest=tuple(folders)), seed=seed)


def _base_to_new(folders: list[str]) -> Place | None:
    """Read .../train_base/DATASET/shots_16/TRAINER/CFG; DePT: .../train_base/TRAINER/DATASET/shots16/CFG."""
    at = next((i for i in reversed(range(len(folders))) if _SUBSET.match(folders[i])), None)
    if at is None:
        return None
    subset = _subset(folders[at])
    inside, rest = folders[at + 1 :], _without_eval(folders[:at])
    where = next((i for i, name in enumerate(inside) if _SHOTS.match(name)), None)
    if where is None:
        return _base_to_new_by_config(inside, subset, rest)
    match = _SHOTS.match(inside[where])
    assert match is not None
    shots, weight = int(match.group(1)), match.group(2) or ""
    before, after = inside[:where], inside[where + 1 :]
    if len(before) >= 2:  # DePT
        trainer, dataset, config, extra = before[0], before[1], "".join(after[:1]), after[1:]
    else:
        dataset, trainer, config, extra = "".join(before), "".join(after[:1]), "".join(after[1:2]), after[2:]
    variant = "/".join([weight] * bool(weight) + extra)
    return Place("base2new", subset, dataset, trainer, config, variant, shots, rest=rest)


def _base_to_new_by_config(inside: list[str], subset: str, rest: tuple[str, ...]) -> Place:
    """Read .../train_base/DATASET/TRAINER/CFG_16shots, the layout of later forks."""
    padded = inside + [""] * 3
    dataset, trainer, config = padded[:3]
    shots = None
    if match := _CONFIG_SHOTS.match(config):
        config, shots = match.group(1), int(match.group(2) or match.group(3))
    return Place("base2new", subset, dataset, trainer, config, "/".join(inside[3:]), shots, rest=rest)


def _transfer(folders: list[str]) -> Place | None:
    """Read .../evaluation/TRAINER/CFG_16shots[/VARIANT]/DATASET."""
    at = next((i for i in reversed(range(len(folders))) if _EVALUATION.match(folders[i])), None)
    if at is None or len(folders) < at + 4:
        return None
    trainer, config, *middle, dataset = folders[at + 1 :]
    shots = None
    if match := _CONFIG_SHOTS.match(config):
        config, shots = match.group(1), int(match.group(2) or match.group(3))
    elif not trainer.lower().startswith("zeroshot"):
        return None  # an unrelated folder of that name
    return Place("transfer", "all", dataset, trainer, config, "/".join(middle), shots, rest=_without_eval(folders[:at]))


def _sessions(folders: list[str]) -> Place | None:
    """Read .../fscil/DATASET/TRAINER/CFG. Whether a run has sessions is stated by its results."""
    if len(folders) < 4 or folders[-4] != "fscil":
        return None
    dataset, trainer, config = folders[-3:]
    return Place("", "all", dataset, trainer, config, rest=tuple(folders[:-4]))


def _few_shot(folders: list[str]) -> Place | None:
    """Read .../DATASET/TRAINER/CFG_16shots[/VARIANT]."""
    at = next((i for i in reversed(range(len(folders))) if _CONFIG_SHOTS.match(folders[i])), None)
    if at is None or at < 2:
        return None
    match = _CONFIG_SHOTS.match(folders[at])
    assert match is not None
    shots = int(match.group(2) or match.group(3))
    dataset, trainer = folders[at - 2], folders[at - 1]
    variant = "/".join(folders[at + 1 :])
    rest = _without_eval(folders[: at - 2])
    return Place("few-shot", "all", dataset, trainer, match.group(1), variant, shots, rest=rest)


def _zero_shot(folders: list[str]) -> Place | None:
    """Read .../ZeroshotCLIP/CFG/DATASET."""
    at = next((i for i in reversed(range(len(folders))) if folders[i].lower().startswith("zeroshotclip")), None)
    if at is None or len(folders) != at + 3:
        return None
    return Place("few-shot", "all", folders[at + 2], folders[at], folders[at + 1], rest=tuple(folders[:at]))


def _subset(name: str) -> str:
    subset = name.lower().split("_")[-1]
    return "new" if subset == "novel" else subset


def _without_eval(folders: Sequence[str]) -> tuple[str, ...]:
    """Remove the suffix _eval: TCP trains in output_1108_4 and evaluates the same experiment in output_1108_4_eval."""
    return tuple(re.sub(r"_eval$", "", name) for name in folders)
