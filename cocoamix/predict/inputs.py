"""The images that a command line names: files, folders and tables, with labels if they are known."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cocoamix.clip.class_names import plain_class, tidy_class
from cocoamix.config.settings import flatten
from cocoamix.dataset_table import OWN, of_kind
from cocoamix.errors import UserError, brief, encodable
from cocoamix.io.paths import expand_home
from cocoamix.registry import plain_name
from cocoamix.run.recorded import RecordedRun

_TABLES = (".csv", ".tsv")


@dataclass(frozen=True)
class Input:
    """An image file and the name of its class, if it is known."""

    path: str
    label: str = ""


@dataclass
class Labels:
    """Turns names of folders and cells of tables into class names.

    Attributes:
        classes: Names of the classes.
        categories: The class name of each folder, or of each class in the table, of the run's dataset.
        lost: Whether the run has such categories but does not record them.
        notes: What the user should know about the labels found so far.
    """

    classes: Sequence[str]
    categories: Mapping[str, str] = field(default_factory=dict)
    lost: bool = False
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._known = {plain_class(name): name for name in self.classes}
        self._recorded = {_composed(one): name for one, name in self.categories.items()}

    def find(self, given: str, tidied: str) -> tuple[str, bool]:
        """Return the class name for a name, and whether it is one of the classes.

        Args:
            given: The name of a folder, or the cell of a table.
            tidied: The class name that it would have by itself.
        """
        recorded = self._recorded.get(_composed(given), "")
        for name in (recorded, tidied):
            if name and plain_class(name) in self._known:
                return self._known[plain_class(name)], True
        return recorded or tidied, False


def labels_of(run: RecordedRun, classes: Sequence[str]) -> Labels:
    """Return what names of folders and cells of tables mean for a run. `classes` are the classes to predict."""
    own = plain_name(str(flatten(run.config).get("DATASET.NAME", ""))) in [one.name for one in of_kind(OWN)]
    return Labels(classes, run.categories, lost=own and not run.categories)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", encodable(text))  # some file systems decompose letters


def find_images(arguments: Sequence[str], labels: Labels) -> list[Input]:
    """Return the images that the arguments name, each once, in order.

    Args:
        arguments: Image files, folders of images, and CSV files with a column of paths. Sub-folders that are named like
            classes or like the folders of the run's dataset, and a column of class names in a table, give labels.
        labels: What the names mean.
    """
    found: dict[str, Input] = {}
    for argument in arguments:
        path = expand_home(argument)
        if path.is_dir():
            images = list(_in_folder(path, labels))
        elif path.suffix.lower() in _TABLES:
            images = _in_table(path, labels)
        elif path.exists():
            images = [Input(str(path))]
        else:
            raise UserError(f"There is no image, folder or table {argument}.")
        if not images:
            raise UserError(f"{argument} contains no images.")
        for image in images:
            found.setdefault(image.path, image)
    return list(found.values())


def _in_folder(folder: Path, labels: Labels) -> Iterator[Input]:
    from cocoamix.datasets.common.items import IMAGE_ENDINGS
    from cocoamix.datasets.common.kept_draws import FOLDER as DRAWS
    from cocoamix.datasets.own.class_names import names_of_folders

    visible = (entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith("."))
    above = sorted(name for name in visible if name != DRAWS)  # a run writes this folder next to the classes
    found = {one: labels.find(one, name) for one, name in names_of_folders(above).items()}
    unknown = [one for one, (_, known) in found.items() if not known]
    labelled = len(unknown) < len(found)
    if len(unknown) > len(found) / 2:
        labels.notes.append(_note_on(folder, unknown, len(found), labels.lost))
    real: set[str] = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        if os.path.realpath(here) in real:  # a link back to a visited folder
            folders[:] = []
            continue
        real.add(os.path.realpath(here))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(here).relative_to(folder).parts
        label = found.get(inside[0], ("", False))[0] if labelled and inside else ""
        for file in sorted(files):
            if file.lower().endswith(IMAGE_ENDINGS) and not file.startswith("."):
                yield Input(os.path.join(here, file), label)


def _note_on(folder: Path, unknown: Sequence[str], count: int, lost: bool) -> str:
    """Return a note on sub-folders that match no class. `lost` is whether the run should have recorded their names."""
    evaluate = (
        "The run does not record the class names of its folders. Evaluate it again (--eval-only, --model-dir), which "
        "records them, and give the new output folder. Or list"
    )
    return (
        f"Note: {len(unknown):,} of {count:,} sub-folders of {folder} match no class, such as {brief(unknown[0])}. "
        f"{evaluate if lost else 'To label them, list'} the images in a table with the columns path and classname."
    )


def _in_table(table: Path, labels: Labels) -> list[Input]:
    from cocoamix.datasets.own.csv_file import locate, read_table

    if not table.is_file():
        raise UserError(f"There is no table {table}.")
    found = []
    rows = read_table(table, needs_class=False)
    named = any(row.name for row in rows)
    for row in rows:
        cell = row.name if named else row.label  # empty if the image has no label
        name, known = labels.find(cell, tidy_class(cell))
        if name.isdecimal() and not known:  # the run does not record the meaning of this number
            raise UserError(f"{table}, line {row.line}: the label is {name}, a number. Add a column `classname`.")
        found.append(Input(locate(table.parent, row.path), name))
    return found
