"""The names of datasets and methods in tables. Folders, classes and papers spell them in different ways."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
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
    "extraslinearprobecoop": "DePT (CoOp)",
    "extraslinearprobecocoop": "DePT (CoCoOp)",
    "extraslinearprobekgcoop": "DePT (KgCoOp)",
    "extraslinearprobemaple": "DePT (MaPLe)",
}
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,3}\b)?)")
_OWN = ("ImageFolderDataset", "CSVDataset")
# Folder names that mean little without the parent folder.
_GENERAL = {"images", "image", "imgs", "img", "photos", "pictures", "data", "dataset", "train"}
_LONGEST = 60  # characters of the name of an own dataset


def simplify(name: str) -> str:
    """Return a name in lower case without punctuation, to compare spellings."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_PUBLISHED = of_kind(PUBLISHED)
_SHOWN = {simplify(spelling): known.table_name for known in _PUBLISHED for spelling in (known.table_name, known.name)}
_ORDER = {name: place for place, name in enumerate(dict.fromkeys(known.table_name for known in _PUBLISHED))}


def method_name(trainer: str) -> str:
    """Return the name that tables show for a trainer."""
    return _TRAINERS.get(simplify(trainer), trainer)


def is_zero_shot(trainer: str) -> bool:
    """Return whether a trainer trains nothing, so that its results depend on neither shots nor seeds."""
    return simplify(trainer).startswith(("zeroshot", "clipzsl"))


def is_clip(trainer: str) -> bool:
    """Return whether a trainer is zero-shot CLIP with one hand-crafted prompt, the starting point of prompt tuning."""
    return simplify(trainer) == "zeroshotclip"


def dataset_name(spelling: str) -> str:
    """Return the name that tables show for a dataset's folder or class name."""
    known = _SHOWN.get(simplify(spelling))
    if known:
        return known
    if re.search(r"[A-Z]", spelling):
        return spelling
    # The folder of an unlisted dataset, such as warm_cool, which is WarmCool in its results.
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[_\-\s]+", spelling))


def own_dataset_name(dataset: str, settings: Mapping[str, Any]) -> str:
    """Return the name of the user's own dataset, after its folder or table; "" for any other dataset.

    Args:
        dataset: The name of the dataset's class.
        settings: Dotted settings of the run.
    """
    if plain_name(dataset) not in _OWN:
        return ""
    folders = [*_path_parts(settings.get("DATASET.ROOT")), *_path_parts(settings.get("DATASET.FOLDER"))]
    name = folders[-1] if folders else ""
    if name.lower() in _GENERAL and len(folders) > 1:
        name = "/".join(folders[-2:])
    table = _path_parts(settings.get("DATASET.CSV"))
    if table:  # one folder may hold several tables
        stem = re.sub(r"\.[ct]sv$", "", table[-1], flags=re.IGNORECASE)
        name = f"{name} ({stem})" if name else stem
    if simplify(name) in _SHOWN:  # a folder with the name of a published dataset may hold other images
        name = f"{name} (own images)"
    return shorten(printable(name), _LONGEST)


def _path_parts(path: Any) -> list[str]:
    """Return the named folders of a path, in Unix's or Windows' notation."""
    parts = re.split(r"[/\\]+", path) if isinstance(path, str) else []
    return [part for part in parts if part not in ("", ".", "..", "~") and not part.endswith(":")]


def sort_datasets(datasets: Iterable[str]) -> list[str]:
    """Return the datasets in the order of the papers' tables; others follow by name."""
    return sorted(set(datasets), key=lambda name: (_ORDER.get(name, len(_ORDER)), natural(name)))


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
