"""Any folder of pictures: one sub-folder for each class, optionally below train, val and test."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.errors import UserError, printable
from cocoamix.registry import register

from ..common.items import IMAGE_ENDINGS, visible
from ..common.kept_draws import FOLDER as DRAWS
from .base import SPLIT_NAMES, OwnDataset, Picture
from .class_names import names_of_folders, numbering

_NOT_CLASSES = (DRAWS, "__MACOSX")


@register(DATASET_REGISTRY)
class ImageFolderDataset(OwnDataset):
    """DIR/<class>/*.jpg, or DIR/train/<class>/*.jpg beside DIR/val and DIR/test."""

    category = "folder"

    def find_pictures(self, folder: Path) -> list[Picture]:
        self._others: list[str] = []  # files that are not pictures
        self._real: dict[str, str] = {}  # real folder -> where it was met first
        pictures: list[Picture] = []
        for split, above in self._splits_of(folder):
            for entry in _entries(above):
                if entry.is_dir() and entry.name not in _NOT_CLASSES:
                    pictures += self._class_pictures(folder, Path(entry.path), split)
        if self._others:
            first = printable(str(self._others[0]))
            print(f"{len(self._others)} files that are not images are left out, the first is {first}")
        if not pictures:
            raise UserError(self._nothing(folder))
        if len({picture.category for picture in pictures}) < 2:
            raise UserError(self._one_class(folder, pictures))
        return pictures

    def plain_names(self, categories: Sequence[str]) -> dict[str, str]:
        return names_of_folders(categories)

    def order(self, categories: Sequence[str]) -> list[str]:
        # Composed letters first: some file systems take them apart, which would sort them elsewhere.
        ordered = sorted(categories, key=lambda one: (unicodedata.normalize("NFC", one), one))
        numbers = numbering(ordered)
        late = next((place for place in range(1, len(numbers)) if numbers[place] < numbers[place - 1]), 0)
        if late:
            print(
                f"Note: the folders are numbered, but their order is that of letters: {ordered[late - 1]} comes before "
                f"{ordered[late]}. Sessions, and base and new classes, follow it. Zeros in front "
                f"({numbers[late]:0{len(str(max(numbers)))}d}) give the order of the numbers."
            )
        return ordered

    # ------------------------------------------------------------------ layout

    def _splits_of(self, folder: Path) -> list[tuple[str, Path]]:
        """Return the folders that hold the classes' folders, each with its split, if the user made splits."""
        found: dict[str, Path] = {}
        others = []
        for entry in _entries(folder):
            if not entry.is_dir() or entry.name in _NOT_CLASSES:
                continue
            split = SPLIT_NAMES.get(entry.name.lower())
            # A folder `train` that holds pictures and no folders is a class: of trains.
            if split is None or not any(inner.is_dir() for inner in _entries(Path(entry.path))):
                others.append(entry.name)
            elif split in found:
                raise UserError(f"{folder} has both {found[split].name}/ and {entry.name}/. Keep one of them.")
            else:
                found[split] = Path(entry.path)
        if not found:
            return [("", folder)]
        # A class that happens to be called `test`, with folders in it, is not to be taken for a split.
        full = [name for name in others if any(True for _ in _walk(folder / name, [], [], {}))]
        if full:
            raise UserError(
                f"{folder} has {found[next(iter(found))].name}/ like a folder with splits, and {full[0]}/ with "
                "images beside it. Keep either splits or classes there; rename what is in the way."
            )
        return [(split, found[split]) for split in ("train", "val", "test") if split in found]

    def _class_pictures(self, folder: Path, above: Path, split: str) -> list[Picture]:
        before = len(self._others)
        loops: list[str] = []
        paths = sorted(_walk(above, self._others, loops, self._real))
        if loops:
            print(f"{loops[0]} is a link back to a folder above it; it is not followed")
        if not paths:
            others = self._others[before:]
            instead = f" It has {len(others)} other files, such as {others[0]}." if others else ""
            instead += f" The link {loops[0]} leads back to a folder above it." if loops else ""
            raise UserError(
                f"The class folder {above} has no images.{instead} Add some, or remove the folder. "
                f"Images end in {', '.join(IMAGE_ENDINGS[:6])} or the like."
            )
        return [
            Picture(path, Path(os.path.relpath(path, folder)).as_posix(), category=above.name, split=split)
            for path in paths
        ]

    def _nothing(self, folder: Path) -> str:
        loose = [entry.name for entry in _entries(folder) if entry.name.lower().endswith(IMAGE_ENDINGS)]
        if loose:
            return (
                f"{folder} holds {len(loose)} images, such as {loose[0]}, but no folders. "
                "Put the images of each class into a folder of its own."
            )
        return f"{folder} holds no folders of images. It should hold one for each class."

    def _one_class(self, folder: Path, pictures: Sequence[Picture]) -> str:
        only = Path(pictures[0].path).relative_to(folder).parts[0]
        inner = [entry.name for entry in _entries(folder / only) if entry.is_dir()]
        hint = f" It holds {len(inner)} folders: did you mean {folder / only}?" if len(inner) > 1 else ""
        return f"{folder} has one class folder, {only}/, and a classifier needs two.{hint}"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, sorted, without hidden names. A link that leads nowhere is refused."""
    entries = sorted(visible(folder), key=lambda one: one.name)
    for entry in entries:
        if entry.is_symlink() and not os.path.exists(entry.path):
            raise UserError(f"{entry.path} is a link that leads nowhere, or in a circle. Mend or remove it.")
    return entries


def _walk(folder: Path, others: list[str], loops: list[str], real: dict[str, str]) -> Iterator[str]:
    """Yield the pictures in a folder and the folders below it. Links are followed, but never back to above.

    others, loops: take the files that are not pictures, and the links that lead back.
    real: real folders met so far; meeting one twice would put the same pictures into two classes or splits.
    """
    here = os.path.realpath(folder)
    if (os.path.realpath(folder.parent) + os.sep).startswith(here + os.sep):
        loops.append(str(folder))
        return
    if here in real:
        raise UserError(
            f"{folder} and {real[here]} are the same folder, so the same images would be there twice. Remove one."
        )
    real[here] = str(folder)
    for entry in _entries(folder):
        if entry.is_dir():
            yield from _walk(Path(entry.path), others, loops, real)
        elif entry.name.lower().endswith(IMAGE_ENDINGS):
            yield entry.path
        else:
            others.append(entry.path)
