"""The names of datasets and methods in tables. Folders, classes and papers spell them in different ways."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cocoamix.dataset_table import PUBLISHED, of_kind

_TRAINERS = {
    "zeroshotclip": "CLIP",
    "zeroshotclip2": "CLIP, ensemble of templates",
    "cocoamix": "CoCoA-Mix",
    "zeroshotclipfscil": "CLIP-ZSL",
    "coopfscil": "CoOp-FSCIL",
    "fsptfscil": "FSPT-FSCIL",
    "factfscil": "FACT w/ CLIP, our interpretation",
    "l2pfscil": "L2P",
    "cocoamixfscil": "CoCoA-Mix",
    "extraslinearprobecoop": "DePT (CoOp)",
    "extraslinearprobecocoop": "DePT (CoCoOp)",
    "extraslinearprobekgcoop": "DePT (KgCoOp)",
    "extraslinearprobemaple": "DePT (MaPLe)",
}


_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3}\b)?)")


def simplify(name: str) -> str:
    """Return a name in lower case without punctuation, to compare spellings."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_PUBLISHED = of_kind(PUBLISHED)
_SHOWN = {simplify(spelling): one.table_name for one in _PUBLISHED for spelling in (one.table_name, one.name)}
_ORDER = {name: place for place, name in enumerate(dict.fromkeys(one.table_name for one in _PUBLISHED))}


def dataset_name(spelling: str) -> str:
    """Return the name that tables show for a dataset's folder or class name."""
    known = _SHOWN.get(simplify(spelling))
    if known:
        return known
    if re.search(r"[A-Z]", spelling):
        return spelling
    # The folder of an unlisted dataset, such as warm_cool, which is WarmCool in its results.
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[_\-\s]+", spelling))


def is_dataset(spelling: str) -> bool:
    """Return whether a folder has the name of a published dataset."""
    return simplify(spelling) in _SHOWN


def sort_datasets(datasets: Iterable[str]) -> list[str]:
    """Return the datasets in the order of the papers' tables; others follow by name."""
    return sorted(set(datasets), key=lambda name: (_ORDER.get(name, len(_ORDER)), natural(name)))


def list_some(names: Sequence[str], most: int = 3) -> str:
    """Return names as a list in a sentence: `A, B and C`, or `A, B and 5 more`."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def natural(name: str) -> tuple[tuple[float, str], ...]:
    """Return a key for natural sorting: case does not matter, and random:2 comes before random:10."""
    parts = _NUMBER.split(name.lower())  # alternately texts and numbers
    keys = [(float(part), "") if place % 2 else (-1.0, part) for place, part in enumerate(parts)]
    return (*keys, (-2.0, name))


def method_name(trainer: str) -> str:
    """Return the name that tables show for a trainer."""
    return _TRAINERS.get(simplify(trainer), trainer)


def is_zero_shot(trainer: str) -> bool:
    """Return whether a trainer trains nothing, so that its results depend on neither shots nor seeds."""
    return simplify(trainer).startswith(("zeroshot", "clipzsl"))


def is_clip(trainer: str) -> bool:
    """Return whether a trainer is zero-shot CLIP with one hand-crafted prompt, the starting point of prompt tuning."""
    return simplify(trainer) == "zeroshotclip"
