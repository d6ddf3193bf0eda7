"""Images listed in a CSV file: a path, a label or a class name, and optionally a split."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.clip.class_names import tidy_class
from cocoamix.errors import UserError, brief, nearest
from cocoamix.io.paths import expand_home
from cocoamix.io.texts import read_text
from cocoamix.registry import register

from ..common.missing import policy_of, refuse
from .base import SPLIT_NAMES, OwnDataset, OwnImage

COLUMNS = {  # accepted headers, in lower case
    "path": ("path", "image", "image_path", "impath", "file", "filename", "file_name", "filepath"),
    "label": ("label", "target"),
    "name": ("classname", "class_name", "class name", "class", "name"),
    "split": ("split", "subset", "set"),
}
DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    line: int
    path: str
    label: str
    name: str
    split: str


@register(DATASET_REGISTRY)
class CSVDataset(OwnDataset):
    """DATASET.CSV, whose paths are below DATASET.ROOT or DATASET.FOLDER."""

    category = "class"
    own_keys = ("FOLDER", "CLASSNAMES", "CSV")

    def find_images(self, folder: Path) -> list[OwnImage]:
        table = self._table(folder)
        print(f"Reading the images from {table}")
        rows = read_table(table)
        self._names, self._labels = _classes(table, rows)
        images: list[OwnImage] = []
        missing: dict[str, int] = {}  # path -> line
        seen: dict[str, int] = {}
        for row in rows:
            path = locate(folder, row.path)
            if not os.path.isfile(path):
                missing.setdefault(path, row.line)
            real = os.path.realpath(path)
            if real in seen:
                raise UserError(f"{table}: line {row.line} names {row.path}, which line {seen[real]} already names.")
            seen[real] = row.line
            key = Path(os.path.relpath(path, folder)).as_posix()
            if key.startswith("../"):
                raise UserError(
                    f"{table}: line {row.line} names {row.path}, which is outside {folder}. Name a folder above all "
                    "images: --root, or DATASET.FOLDER."
                )
            images.append(OwnImage(path, key, category=row.name or row.label, split=row.split))
        advice = f"Paths are below {folder}. DATASET.BAD_IMAGES skip leaves out the missing images."
        first_is = f" (line {next(iter(missing.values()))})" if missing else ""
        refuse(list(missing), len(rows), str(table), policy_of(self.cfg), advice, first_is)
        return images

    def plain_names(self, categories: Sequence[str]) -> dict[str, str]:
        if not self._names:
            raise UserError(
                "The classes of the table are numbers, but prompts need names. Add a column `classname`, or a file "
                "with lines of a label, a comma and a class name: DATASET.CLASSNAMES."
            )
        return {category: tidy_class(category) for category in categories}

    def order(self, categories: Sequence[str]) -> list[str]:
        if not self._labels:
            return sorted(categories)
        ordered = sorted(categories, key=lambda one: self._labels[one])
        if [self._labels[one] for one in ordered] != list(range(len(ordered))):
            print(
                f"The labels run from {self._labels[ordered[0]]} to {self._labels[ordered[-1]]}; they become 0, 1, ..."
            )
        return ordered

    def _table(self, folder: Path) -> Path:
        given = self.cfg.DATASET.CSV
        if given:
            beside = folder / expand_home(given)
            table = beside if beside.is_file() else expand_home(given)
            if not table.is_file():
                raise UserError(f"DATASET.CSV names {given}, which is neither in {folder} nor in the current folder.")
            return table
        found = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".csv", ".tsv") and path.is_file())
        if len(found) != 1:
            listed = ", ".join(path.name for path in found[:5]) or "none"
            raise UserError(f"Name the table: DATASET.CSV FILE. {folder} has {len(found)} (.csv or .tsv): {listed}.")
        return found[0]


def read_table(table: Path, needs_class: bool = True) -> list[Row]:
    """Read a table whose cells are separated by commas, semicolons or tabs.

    Args:
        table: The file.
        needs_class: Whether to refuse a table or a row without a label or a class name. If not, only paths are needed,
            and splits are not read.
    """
    text = read_text(table)
    header = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(DELIMITERS, key=lambda one: (len(_columns(_cells(header, one))), header.count(one)))
    columns = _columns(_cells(header, delimiter))
    if "path" not in columns or (needs_class and not {"label", "name"} & set(columns)):
        classes = ", and `label` or `classname`, and if there are splits `split`" if needs_class else ""
        raise UserError(
            f"{table} needs a first line that names the columns: `path`{classes}, separated by commas, semicolons or "
            f"tabs. Its first line is {header.strip()[:100]!r}."
        )
    rows: list[Row] = []
    width = 0  # of the header, once it is read
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if width:
                    rows.append(_row(table, line, cells, width, columns, needs_class))
                width = width or len(cells)
            line = reader.line_num + 1  # of the next row; a quoted cell may hold several lines
    except csv.Error as error:
        raise UserError(f"{table}, line {reader.line_num}: {error}.") from error
    if not rows:
        raise UserError(f"{table} has a header, but no images.")
    return rows


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:  # a cell that is too long to be a header
        return []


def _columns(header: Sequence[str]) -> dict[str, int]:
    """Return the positions of the known columns."""
    names = [name.strip().lower() for name in header]
    found: dict[str, int] = {}
    for column, known in COLUMNS.items():
        for name in known:
            if name in names:
                found[column] = names.index(name)
                break
    return found


def _row(table: Path, line: int, cells: Sequence[str], width: int, columns: dict[str, int], needs_class: bool) -> Row:
    where = f"{table}, line {line}"
    if len(cells) != width:
        raise UserError(f"{where}: {len(cells)} cells, but the first line has {width}. Quote cells with separators.")
    values = {column: cells[place].strip() for column, place in columns.items()}
    for column, value in values.items():
        if not value and (needs_class or column == "path"):
            raise UserError(f"{where}: the {column} is empty.")
    split = values.get("split", "") if needs_class else ""
    if split:
        if split.lower() not in SPLIT_NAMES:
            hint = nearest(split, SPLIT_NAMES)
            raise UserError(f"{where}: the split is {brief(split)}.{hint} It must be train, val or test.")
        split = SPLIT_NAMES[split.lower()]
    return Row(line, values["path"], values.get("label", ""), values.get("name", ""), split)


def _classes(table: Path, rows: Sequence[Row]) -> tuple[bool, dict[str, int]]:
    """Return whether classes have names, and the label of each class if the table has labels."""
    has_names, has_labels = bool(rows[0].name), bool(rows[0].label)
    numeric = [row for row in rows if _is_number(row.label)]
    if has_labels and len(numeric) < len(rows):
        other = next(row for row in rows if not _is_number(row.label))
        if numeric or has_names:
            shown = brief(other.label)
            raise UserError(f"{table}, line {other.line}: the label is {shown}, which is not a whole number.")
        return True, {}  # a column `label` with class names
    if not has_labels:
        return True, {}
    labels: dict[str, tuple[int, int]] = {}
    owners: dict[int, tuple[str, int]] = {}
    for row in rows:
        category, label = row.name or row.label, int(row.label)
        known, line = labels.setdefault(category, (label, row.line))
        if known != label:
            raise UserError(
                f"{table}, line {row.line}: the class {category!r} has the label {label}, but {known} in line {line}."
            )
        owner, line = owners.setdefault(label, (category, row.line))
        if owner != category:
            raise UserError(
                f"{table}, line {row.line}: the label {label} is {category!r}, but {owner!r} in line {line}."
            )
    return has_names, {category: label for category, (label, _) in labels.items()}


def _is_number(label: str) -> bool:
    return label.isdecimal() and len(label) < 20  # Python does not convert thousands of digits


def locate(folder: Path, path: str) -> str:
    """Return the path of an image; a table from Windows has backslashes."""
    here = os.path.join(folder, os.path.expanduser(path))
    if not os.path.isfile(here) and "\\" in path:
        return os.path.join(folder, *path.split("\\"))
    return here
