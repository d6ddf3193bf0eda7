"""The images that a command line names: files, folders and tables, with labels if they are known."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cocoamix.errors import UserError, brief, encodable
from cocoamix.io.paths import expand_home


@dataclass(frozen=True)
class Input:
    """An image file and the name of its class, if it is known."""

    path: str
    label: str = ""


class Labels:
    """Turns names of folders and cells of tables into class names.

    Args:
        classes: Names of the classes.
        categories: The class name of each folder, or of each class in the table, of the run's dataset.

    Attributes:
        notes: What the user should know about the labels.
    """

    def __init__(self, classes: Sequence[str], categories: Mapping[str, str] = MappingProxyType({})) -> None:
        from cocoamix.clip.class_names import plain_class  # here, because it imports torch

        self._plain = plain_class
        self._known = {plain_class(name): name for name in classes}
        self._recorded = {_composed(category): name for category, name in categories.items()}
        self.notes: list[str] = []

    def find(self, name: str, tidied: str) -> tuple[str, bool]:
        """Return the class name for a name, and whether it is one of the classes.

        Args:
            name: The name of a folder, or the cell of a table.
            tidied: The class name that it would have by itself.
        """
        recorded = self._recorded.get(_composed(name), "")
        plain = next((key for key in map(self._plain, (recorded, tidied)) if key in self._known), "")
        return (self._known[plain], True) if plain else (recorded or tidied, False)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", encodable(text))  # some file systems decompose letters


def find_images(arguments: Sequence[str], labels: Labels) -> list[Input]:
    """Return the images that the arguments name, each once, in order.

    Args:
        arguments: Image files, folders of images, and CSV files with a column of paths. Sub-folders that are named like
            classes or like the folders of the run's dataset, and a column of class names in a table, give labels.
        labels: What the names mean.
    """
    images: dict[str, Input] = {}
    for argument in arguments:
        path = expand_home(argument)
        if path.is_dir():
            inside = list(_in_folder(path, labels))
        elif path.suffix.lower() in (".csv", ".tsv"):
            inside = _in_table(path, labels)
        elif path.exists():
            inside = [Input(str(path))]
        else:
            raise UserError(f"There is no image, folder or table {argument}.")
        if not inside:
            raise UserError(f"{argument} contains no images.")
        for image in inside:
            images.setdefault(image.path, image)
    return list(images.values())


def _in_folder(folder: Path, labels: Labels) -> Iterator[Input]:
    from cocoamix.datasets.common.items import IMAGE_ENDINGS

    label_of, real = _label_folders(folder, labels), set[str]()
    for here, folders, files in os.walk(folder, followlinks=True):
        if os.path.realpath(here) in real:  # a link back to a visited folder
            folders[:] = []
            continue
        real.add(os.path.realpath(here))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(here).relative_to(folder).parts
        for file in sorted(files):
            if file.lower().endswith(IMAGE_ENDINGS) and not file.startswith("."):
                yield Input(os.path.join(here, file), label_of.get(inside[0], "") if inside else "")


def _label_folders(folder: Path, labels: Labels) -> dict[str, str]:
    """Return the label of each sub-folder; empty if none is named like a class."""
    from cocoamix.datasets.common.kept_draws import FOLDER as DRAWS
    from cocoamix.datasets.own.class_names import names_of_folders

    visible = (entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    names = names_of_folders(sorted(name for name in visible if name != DRAWS))  # a run keeps its draws there
    meant = {name: labels.find(name, tidied) for name, tidied in names.items()}
    unknown = [name for name, (_, known) in meant.items() if not known]
    if len(unknown) > len(meant) / 2:
        labels.notes.append(
            f"Note: {len(unknown):,} of {len(meant):,} sub-folders of {folder} match no class, such as "
            f"{brief(unknown[0])}. To label them, list the images in a table with the columns path and classname."
        )
    return {} if len(unknown) == len(meant) else {name: label for name, (label, _) in meant.items()}


def _in_table(table: Path, labels: Labels) -> list[Input]:
    from cocoamix.clip.class_names import tidy_class
    from cocoamix.datasets.own.csv_file import locate, read_table

    if not table.is_file():
        raise UserError(f"There is no table {table}.")
    images, rows = [], read_table(table, needs_class=False)
    named = any(row.name for row in rows)
    for row in rows:
        cell = row.name if named else row.label  # empty if the image has no label
        name, known = labels.find(cell, tidy_class(cell))
        if name.isdecimal() and not known:  # the run does not record the meaning of this number
            raise UserError(f"{table}, line {row.line}: the label is {name}, a number. Add a column `classname`.")
        images.append(Input(locate(table.parent, row.path), name))
    return images
