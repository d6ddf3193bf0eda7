"""Normalisation and matching of class names. No other module normalises them."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any


def class_words(name: str) -> str:
    """Return a class name as it appears in prompts: with spaces for underscores, as in CoOp."""
    return name.replace("_", " ")


def tidy_class(name: str) -> str:
    """Return the class name for a folder name or a table cell: underscores and runs of spaces as one space, in NFC."""
    return " ".join(class_words(unicodedata.normalize("NFC", name)).split())


def plain_class(name: str) -> str:
    """Return a class name in the form used for comparisons, not for prompts: lower case, with spaces."""
    return class_words(name).strip().lower()


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names with a number appended to those that several classes share, as two of ImageNet's do.

    This is for outputs, where a name must identify a class, not for prompts.
    """
    total, seen, found = Counter(map(plain_class, names)), Counter[str](), []
    for name in names:
        plain = plain_class(name)
        seen[plain] += 1
        found.append(f"{name} ({seen[plain]})" if total[plain] > 1 else name)
    return found


def synsets_of(items: Iterable[Any], classes: int) -> list[str]:
    """Return ImageNet's identifier of each class, such as `n01440764`, from the names of the image folders.

    The list is empty for datasets with other folder names.
    """
    folders: dict[int, str] = {}
    for item in items:
        if item.label not in folders:
            folders[item.label] = PurePath(item.impath).parent.name
    found = [folders.get(label, "") for label in range(classes)]
    return found if all(re.fullmatch(r"n\d{8}", name) for name in found) else []


def find_rows(
    names: Sequence[str], known: Sequence[str], synsets: Sequence[str] = (), known_synsets: Sequence[str] = ()
) -> tuple[list[int], list[str]]:
    """Match classes to known classes, by synset if both sides have them, otherwise by name.

    Classes that share a name (CLIP calls two of ImageNet's "missile") are matched in order if both sides have equally
    many of them. Otherwise the name is ambiguous and matches nothing.

    Args:
        names: Names of the classes.
        known: Names of the known classes.
        synsets: ImageNet identifiers of the classes, if any.
        known_synsets: ImageNet identifiers of the known classes, if any.

    Returns:
        The index of each class among the known ones, -1 if it is not there, and the ambiguous names.
    """
    if synsets and known_synsets:
        numbers = {synset: number for number, synset in enumerate(known_synsets)}
        return [numbers.get(synset, -1) for synset in synsets], []
    indices = defaultdict(list)
    for number, name in enumerate(known):
        indices[plain_class(name)].append(number)
    counts = Counter(map(plain_class, names))
    ambiguous = [name for name, count in counts.items() if indices.get(name) and len(indices[name]) != count]
    queues = {name: iter(numbers) for name, numbers in indices.items() if name not in ambiguous}
    return [next(queues.get(plain_class(name), iter(())), -1) for name in names], ambiguous
