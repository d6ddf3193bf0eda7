"""Spellings of class names, in prompts and in comparisons, and which of the known classes a class is.

Class names are normalised here and nowhere else.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any


def class_words(name: str) -> str:
    """Return a class name as prompts have it, with spaces for underscores, as in CoOp."""
    return name.replace("_", " ")


def tidy_class(name: str) -> str:
    """Return the class name that a folder or a table gives: its words, single spaces, composed letters."""
    return " ".join(class_words(unicodedata.normalize("NFC", name)).split())


def plain_class(name: str) -> str:
    """Return what two spellings of one class name share. It is for comparisons, never for prompts."""
    return class_words(name).strip().lower()


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names with a number behind those that several classes share, as two of ImageNet's do.

    It is for outputs, in which a name has to stand for one class, never for prompts.
    """
    total, seen, found = Counter(map(plain_class, names)), Counter[str](), []
    for name in names:
        plain = plain_class(name)
        seen[plain] += 1
        found.append(f"{name} ({seen[plain]})" if total[plain] > 1 else name)
    return found


def synsets_of(items: Iterable[Any], classes: int) -> list[str]:
    """Return ImageNet's identifier of each class, `n01440764`, by which the folders of its pictures are named.

    Nothing for a dataset whose folders are not named so.
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
    """Return the number of each class among the known ones, -1 for one that is not there, and the names left unclear.

    By identifier where both sides have them. Else by name, and classes of one name (CLIP calls two of ImageNet's
    "missile") are taken in their order if there are as many on both sides. If not, which is which cannot be told, and
    none of them is found.
    """
    if synsets and known_synsets:
        numbers = {synset: number for number, synset in enumerate(known_synsets)}
        return [numbers.get(synset, -1) for synset in synsets], []
    places = defaultdict(list)
    for number, name in enumerate(known):
        places[plain_class(name)].append(number)
    counts = Counter(map(plain_class, names))
    unclear = [name for name, count in counts.items() if places.get(name) and len(places[name]) != count]
    queues = {name: iter(numbers) for name, numbers in places.items() if name not in unclear}
    return [next(queues.get(plain_class(name), iter(())), -1) for name in names], unclear
