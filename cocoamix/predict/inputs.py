"""The images that a command line names: files, folders and tables, with labels if they are known."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cocoamix.clip.class_names import plain_class, tidy_class
from cocoamix.errors import UserError
from cocoamix.io.paths import expand_home

_TABLES = (".csv", ".tsv")


@dataclass(frozen=True)
class Input:
    """An image file and the name of its class, if it is known."""

    path: str
    label: str = ""


def find_images(arguments: Sequence[str], classes: Sequence[str]) -> list[Input]:
    """Return the images that the arguments name, each once, in order.

    Args:
        arguments: Image files, folders of images, and CSV files with a column of paths. Sub-folders that are named like
            classes, and a column of class names in a table, give labels.
        classes: Names of the classes.
    """
    found: dict[str, Input] = {}
    for argument in arguments:
        path = expand_home(argument)
        if path.is_dir():
            images = list(_in_folder(path, classes))
        elif path.suffix.lower() in _TABLES:
            images = _in_table(path, classes)
        elif path.exists():
            images = [Input(str(path))]
        else:
            raise UserError(f"There is no image, folder or table {argument}.")
        if not images:
            raise UserError(f"{argument} contains no images.")
        for image in images:
            found.setdefault(image.path, image)
    return list(found.values())


def _in_folder(folder: Path, classes: Sequence[str]) -> Iterator[Input]:
    from cocoamix.datasets.common.items import IMAGE_ENDINGS
    from cocoamix.datasets.own.class_names import names_of_folders

    above = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    names = names_of_folders(above)
    known = {plain_class(name): name for name in classes}
    labelled = any(plain_class(name) in known for name in names.values())
    real: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        if os.path.realpath(here) in real:  # a link back to a visited folder
            folders[:] = []
            continue
        real.add(os.path.realpath(here))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(here).relative_to(folder).parts
        name = names[inside[0]] if labelled and inside else ""
        for file in sorted(files):
            if file.lower().endswith(IMAGE_ENDINGS) and not file.startswith("."):
                yield Input(os.path.join(here, file), known.get(plain_class(name), name))


def _in_table(table: Path, classes: Sequence[str]) -> list[Input]:
    from cocoamix.datasets.own.csv_file import locate, read_table

    if not table.is_file():
        raise UserError(f"There is no table {table}.")
    known = {plain_class(name): name for name in classes}
    found = []
    rows = read_table(table, needs_class=False)
    named = any(row.name for row in rows)
    for row in rows:
        name = tidy_class(row.name if named else row.label)  # empty if the image has no label
        if name.isdecimal() and plain_class(name) not in known:  # the run does not record the meaning of numbers
            raise UserError(f"{table}, line {row.line}: the label is {name}, a number. Add a column `classname`.")
        found.append(Input(locate(table.parent, row.path), known.get(plain_class(name), name)))
    return found
