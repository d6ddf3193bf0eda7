"""Find datasets that are in the data folder under another common name, and suggest commands that rename them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from .sources import Part, Source

# Folder names in archives and other code bases, in lower case without punctuation.
FOLDER_NAMES = {
    "ImageNet": ("imagenet1k", "ilsvrc", "ilsvrc2012", "imagenet2012"),
    "Caltech101": ("caltech",),
    "OxfordPets": ("oxfordiiitpet", "oxfordiiitpets", "oxfordpet", "pets"),
    "StanfordCars": ("cars", "cars196", "car196", "stanfordcar"),
    "OxfordFlowers": ("flowers", "flowers102", "102flowers", "oxfordflowers102", "flower102"),
    "FGVCAircraft": ("aircraft", "fgvcaircraft2013b"),
    "DescribableTextures": ("dtdr101", "textures"),
    "EuroSAT": ("eurosatrgb",),
    "UCF101": ("ucf", "ucf101midframes"),
    "ImageNetV2": ("imagenetv2matchedfrequency",),
    "ImageNetSketch": ("sketch",),
    "ImageNetA": ("imageneta",),
    "ImageNetR": ("imagenetr",),
    "CUB200FSCIL": ("cub", "cub200", "cub2011"),
}
PART_NAMES = {  # names of parts in archives
    "2750": ("EuroSAT_RGB", "EuroSAT"),
    "images/train": ("train", "ILSVRC/Data/CLS-LOC/train"),
    "images/val": ("val", "ILSVRC/Data/CLS-LOC/val"),
}


def renames(source: Source, lacking: Sequence[Part], root: Path) -> list[str]:
    """Return commands that move missing parts of a dataset to their place from elsewhere in the data folder."""
    home = root / source.folder
    places = list(_places(source, root))
    needed = [part for part in lacking if part.required] or lacking
    whole = next((place for place in places if all((place / part.path).exists() for part in needed)), None)
    if whole is not None and not home.exists():
        return [_move(whole, home)]
    commands = []
    for part in lacking:
        names = (part.path, *PART_NAMES.get(part.path, ()))
        found = next((place / name for place in places for name in names if (place / name).exists()), None)
        if found is None and re.search(r"[\d_-]", part.path) and (root / part.path).is_dir():
            found = root / part.path  # a name that only this dataset has
        if found is not None:
            target = home / part.path
            make = "" if target.parent.is_dir() else f"mkdir -p {shlex.quote(str(target.parent))} && "
            commands.append(make + _move(found, target))
    return commands


def _move(here: Path, there: Path) -> str:
    return f"mv {shlex.quote(str(here))} {shlex.quote(str(there))}"


def _places(source: Source, root: Path) -> Iterator[Path]:
    """Yield folders that may hold the dataset: its own, those of its other names, and their sub-folders."""
    names = {_plain(name) for name in (source.folder, source.name, source.config)}
    names |= set(FOLDER_NAMES.get(source.name, ()))
    home = root / source.folder
    for above in [home, *(folder for folder in _folders(root) if _plain(folder.name) in names and folder != home)]:
        yield above
        yield from _folders(above)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except (OSError, ValueError):  # a name with a null byte
        return []
