"""The names of datasets and methods in tables. Folders, classes and papers spell them in different ways."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from cocoamix.dataset_table import PUBLISHED, of_kind
from cocoamix.errors import printable, shorten
from cocoamix.registry import plain_name

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
}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3}\b)?)")
_GENERAL = {"images", "image", "imgs", "img", "photos", "pictures", "data", "dataset", "train"}  # names of folders
_LONGEST = 60  # characters of the name of an own dataset


def simplify(name: str) -> str:
    """Return a name in lower case without punctuation, to compare spellings."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_PUBLISHED = of_kind(PUBLISHED)
_SHOWN = {simplify(spelling): known.table_name for known in _PUBLISHED for spelling in (known.table_name, known.name)}
_ORDER = list(dict.fromkeys(known.table_name for known in _PUBLISHED))


def method_name(trainer: str) -> str:
    """Return the name that tables show for a trainer."""
    on_dept = re.fullmatch("ExtrasLinearProbe(.+)", trainer)
    return f"DePT ({on_dept[1]})" if on_dept else _TRAINERS.get(simplify(trainer), trainer)


def is_zero_shot(trainer: str) -> bool:
    """Return whether a trainer trains nothing, so that its results depend on neither shots nor seeds."""
    return simplify(trainer).startswith(("zeroshot", "clipzsl"))


def is_clip(trainer: str) -> bool:
    """Return whether a trainer is zero-shot CLIP with one hand-crafted prompt, the starting point of prompt tuning."""
    return simplify(trainer) == "zeroshotclip"


def dataset_name(spelling: str) -> str:
    """Return the name that tables show for a dataset's folder or class name: WarmCool for the folder warm_cool."""
    known = _SHOWN.get(simplify(spelling))
    if known or not spelling.islower():
        return known or spelling
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"[_\-\s]+", spelling))


def own_dataset_name(dataset: str, settings: Mapping[str, Any]) -> str:
    """Return the name of the user's own dataset, after its folder and table; "" for any other dataset.

    Args:
        dataset: The name of the dataset's class.
        settings: Dotted settings of the run.
    """
    if plain_name(dataset) not in ("ImageFolderDataset", "CSVDataset"):
        return ""
    root, folder, table = (str(settings.get(f"DATASET.{key}") or "") for key in ("ROOT", "FOLDER", "CSV"))
    parts = [part for part in PurePath(root, folder).parts if part not in ("/", "..", "~")]
    name = "/".join(parts[-2:] if parts and parts[-1].lower() in _GENERAL else parts[-1:])
    if table:  # one folder may hold several tables
        name = f"{name} ({PurePath(table).stem})" if name else PurePath(table).stem
    if simplify(name) in _SHOWN:  # a folder with the name of a published dataset may hold other images
        name = f"{name} (own images)"
    return shorten(printable(name), _LONGEST)


def sort_datasets(datasets: Iterable[str]) -> list[str]:
    """Return the datasets in the order of the papers' tables; others follow by name."""
    names = set(datasets)
    return [*(name for name in _ORDER if name in names), *sorted(names.difference(_ORDER), key=natural)]


def sort_methods(labels: Mapping[str, str]) -> list[str]:
    """Return labels as papers order them: zero-shot methods first, our own last. The values are their trainers."""
    return sorted(
        labels, key=lambda label: (not is_zero_shot(labels[label]), labels[label].startswith("CoCoA"), natural(label))
    )


def list_some(names: Sequence[str], most: int = 3) -> str:
    """Return names as a list in a sentence: `A, B and C`, or `A, B and 5 more`."""
    shown = list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def natural(name: str) -> tuple[tuple[float, str], ...]:
    """Return a key for natural sorting: case does not matter, and random:2 comes before random:10."""
    parts = _NUMBER.split(name.lower())  # alternately texts and numbers
    keys = [(float(part), "") if place % 2 else (-1.0, part) for place, part in enumerate(parts)]
    return (*keys, (-2.0, name))
