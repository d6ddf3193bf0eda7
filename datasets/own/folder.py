"""A folder of images: one sub-folder per class, optionally below train, val and test."""

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
from .base import SPLIT_NAMES, OwnDataset, OwnImage
from .class_names import names_of_folders, numbering

_NOT_CLASSES = (DRAWS, "__MACOSX")


@register(DATASET_REGISTRY)
class ImageFolderDataset(OwnDataset):
    """DIR/<class>/*.jpg, or DIR/train/<class>/*.jpg next to DIR/val and DIR/test."""

    category = "folder"
    lists_missing = False

    def find_images(self, folder: Path) -> list[OwnImage]:
        self._others: list[str] = []  # files that are not images
        self._real: dict[str, str] = {}  # real folder -> where it was first found
        images: list[OwnImage] = []
        for split, above in self._splits_of(folder):
            for entry in _entries(above):
                if entry.is_dir() and entry.name not in _NOT_CLASSES:
                    images += self._class_images(folder, Path(entry.path), split)
        if self._others:
            first = printable(str(self._others[0]))
            print(f"{len(self._others)} files are not images and are ignored; the first is {first}")
        if not images:
            raise UserError(self._nothing(folder))
        if len({image.category for image in images}) < 2:
            raise UserError(self._one_class(folder, images))
        return images

    def plain_names(self, categories: Sequence[str]) -> dict[str, str]:
        return names_of_folders(categories)

    def order(self, categories: Sequence[str]) -> list[str]:
        # Normalised, because some file systems decompose letters, which changes the order.
        ordered = sorted(categories, key=lambda one: (unicodedata.normalize("NFC", one), one))
        numbers = numbering(ordered)
        late = next((place for place in range(1, len(numbers)) if numbers[place] < numbers[place - 1]), 0)
        if late:
            print(
                f"Note: the folders are numbered, but sorted as text: {ordered[late - 1]} comes before "
                f"{ordered[late]}. Sessions, and base and new classes, follow this order. Leading zeros "
                f"({numbers[late]:0{len(str(max(numbers)))}d}) sort the folders by number."
            )
        return ordered

    # ------------------------------------------------------------------ layout

    def _splits_of(self, folder: Path) -> list[tuple[str, Path]]:
        """Return the split and the folder of each set of class folders. Without splits, the split is empty."""
        found: dict[str, Path] = {}
        others = []
        for entry in _entries(folder):
            if not entry.is_dir() or entry.name in _NOT_CLASSES:
                continue
            split = SPLIT_NAMES.get(entry.name.lower())
            # A folder `train` with images but no folders is a class, such as trains.
            if split is None or not any(inner.is_dir() for inner in _entries(Path(entry.path))):
                others.append(entry.name)
            elif split in found:
                raise UserError(f"{folder} has both {found[split].name}/ and {entry.name}/. Keep one of them.")
            else:
                found[split] = Path(entry.path)
        if not found:
            return [("", folder)]
        # A class called `test` that has folders must not be taken for a split.
        full = [name for name in others if any(True for _ in _walk(folder / name, [], [], {}))]
        if full:
            raise UserError(
                f"{folder} has {found[next(iter(found))].name}/ like a folder with splits, but also {full[0]}/ with "
                "images. Use either splits or classes there, and rename the others."
            )
        return [(split, found[split]) for split in ("train", "val", "test") if split in found]

    def _class_images(self, folder: Path, above: Path, split: str) -> list[OwnImage]:
        before = len(self._others)
        loops: list[str] = []
        paths = sorted(_walk(above, self._others, loops, self._real))
        if loops:
            print(f"{loops[0]} is a link to a folder above it and is not followed")
        if not paths:
            others = self._others[before:]
            instead = f" It has {len(others)} other files, such as {others[0]}." if others else ""
            instead += f" {loops[0]} is a link to a folder above it." if loops else ""
            raise UserError(
                f"The class folder {above} has no images.{instead} Add some, or remove the folder. "
                f"Images end in {', '.join(IMAGE_ENDINGS[:6])} or the like."
            )
        return [
            OwnImage(path, Path(os.path.relpath(path, folder)).as_posix(), category=above.name, split=split)
            for path in paths
        ]

    def _nothing(self, folder: Path) -> str:
        loose = [entry.name for entry in _entries(folder) if entry.name.lower().endswith(IMAGE_ENDINGS)]
        if loose:
            return (
                f"{folder} has {len(loose)} images, such as {loose[0]}, but no folders. "
                "Put the images of each class into a separate folder."
            )
        return f"{folder} has no folders of images. It needs one for each class."

    def _one_class(self, folder: Path, images: Sequence[OwnImage]) -> str:
        only = Path(images[0].path).relative_to(folder).parts[0]
        inner = [entry.name for entry in _entries(folder / only) if entry.is_dir()]
        hint = f" It has {len(inner)} folders: did you mean {folder / only}?" if len(inner) > 1 else ""
        return f"{folder} has one class folder, {only}/, and a classifier needs two.{hint}"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the sorted entries of a folder without hidden ones; refuse a broken link."""
    entries = sorted(visible(folder), key=lambda one: one.name)
    for entry in entries:
        if entry.is_symlink() and not os.path.exists(entry.path):
            raise UserError(f"{entry.path} is a broken or circular link. Fix or remove it.")
    return entries


def _walk(folder: Path, others: list[str], loops: list[str], real: dict[str, str]) -> Iterator[str]:
    """Yield the images in a folder and its sub-folders. Links are followed, except to a folder above.

    Args:
        folder: The folder.
        others: Receives the files that are not images.
        loops: Receives the links to folders above.
        real: The real folders found so far. A second occurrence would put the same images into two classes or splits.
    """
    here = os.path.realpath(folder)
    if (os.path.realpath(folder.parent) + os.sep).startswith(here + os.sep):
        loops.append(str(folder))
        return
    if here in real:
        raise UserError(f"{folder} and {real[here]} are the same folder, so its images would occur twice. Remove one.")
    real[here] = str(folder)
    for entry in _entries(folder):
        if entry.is_dir():
            yield from _walk(Path(entry.path), others, loops, real)
        elif entry.name.lower().endswith(IMAGE_ENDINGS):
            yield entry.path
        else:
            others.append(entry.path)
