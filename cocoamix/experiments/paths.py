"""Read the path of a run: CoOp's output layout, KgCoOp's weight behind the shots, and DePT's order of folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

_SEED = re.compile(r"^seed[_-]?(\d+)$", re.IGNORECASE)
_SUBSET = re.compile(r"^(?:train|test|eval)_(base|new|novel|all)$", re.IGNORECASE)
_SHOTS = re.compile(r"^shots?_?(\d+)(?:_(.+))?$", re.IGNORECASE)  # shots_16, shots16, shots_16_8.0
_CONFIG_SHOTS = re.compile(r"^(.+)_(?:(\d+)shots?|shots_(\d+))$", re.IGNORECASE)  # vit_b16_16shots


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
    place = next((place for reader in readers if (place := reader(folders))), None)
    return replace(place or Place(rest=tuple(folders)), seed=seed)


def _base_to_new(folders: list[str]) -> Place | None:
    """Read .../train_base/DATASET/shots_16/TRAINER/CFG; DePT: .../train_base/TRAINER/DATASET/shots16/CFG."""
    at = next((i for i in reversed(range(len(folders))) if _SUBSET.match(folders[i])), None)
    if at is None:
        return None
    subset = folders[at].lower().split("_")[-1]
    inside = folders[at + 1 :]
    where = next((i for i, name in enumerate(inside) if _SHOTS.match(name)), len(inside))
    match = _SHOTS.match(inside[where]) if where < len(inside) else None
    before, after = inside[:where], [*inside[where + 1 :], "", ""]
    if len(before) >= 2 and match:  # DePT
        trainer, dataset, config, *extra = [*before[:2], *after]
    else:
        dataset, trainer, config, *extra = [*before[:1], *[""] * (not before), *after]
    weight = match.group(2) if match else None
    variant = "/".join(filter(None, [weight, *extra]))
    shots = int(match.group(1)) if match else None
    subset = "new" if subset == "novel" else subset
    return Place("base2new", subset, dataset, trainer, config, variant, shots, rest=tuple(folders[:at]))


def _transfer(folders: list[str]) -> Place | None:
    """Read .../evaluation/TRAINER/CFG_16shots[/VARIANT]/DATASET."""
    at = next((i for i in reversed(range(len(folders))) if folders[i].lower() == "evaluation"), None)
    if at is None or len(folders) < at + 4:
        return None
    trainer, config, *middle, dataset = folders[at + 1 :]
    match = _CONFIG_SHOTS.match(config)
    if match is None and not trainer.lower().startswith("zeroshot"):
        return None  # an unrelated folder of that name
    config, shots = _config_and_shots(match) if match else (config, None)
    return Place("transfer", "all", dataset, trainer, config, "/".join(middle), shots, rest=tuple(folders[:at]))


def _sessions(folders: list[str]) -> Place | None:
    """Read .../fscil/DATASET/TRAINER/CFG. Whether a run has sessions is stated by its results."""
    if len(folders) < 4 or folders[-4] != "fscil":
        return None
    dataset, trainer, config = folders[-3:]
    return Place("", "all", dataset, trainer, config, rest=tuple(folders[:-4]))


def _few_shot(folders: list[str]) -> Place | None:
    """Read .../DATASET/TRAINER/CFG_16shots[/VARIANT]."""
    matches = [_CONFIG_SHOTS.match(name) for name in folders]
    at = next((i for i in reversed(range(2, len(folders))) if matches[i]), None)
    if at is None:
        return None
    match = matches[at]
    assert match is not None
    config, shots = _config_and_shots(match)
    variant, rest = "/".join(folders[at + 1 :]), tuple(folders[: at - 2])
    return Place("few-shot", "all", folders[at - 2], folders[at - 1], config, variant, shots, rest=rest)


def _zero_shot(folders: list[str]) -> Place | None:
    """Read .../ZeroshotCLIP/CFG/DATASET."""
    if len(folders) < 3 or not folders[-3].lower().startswith("zeroshotclip"):
        return None
    trainer, config, dataset = folders[-3:]
    return Place("few-shot", "all", dataset, trainer, config, rest=tuple(folders[:-3]))


def _config_and_shots(match: re.Match[str]) -> tuple[str, int]:
    return match.group(1), int(match.group(2) or match.group(3))
