"""Items and their files and folders."""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from dassl.data.datasets import Datum

from cocoamix.errors import UserError, brief, printable
from cocoamix.io.texts import UnreadableError, read_text

Items = list[Datum]
Value = TypeVar("Value")

# File endings of images in a listed folder. Split files and annotations may name any file.
IMAGE_ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".jp2", ".avif", ".heic", ".heif"),
)
ENOUGH_TO_LIST = 20  # for this many files of one folder, listing it is faster than checking each


def new_item(path: str, label: int, classname: str, domain: int = 0) -> Datum:
    """Return an item without checking its file; `missing_files` checks whole folders at once."""
    item = Datum.__new__(Datum)
    item._impath, item._label, item._domain, item._classname = path, label, domain, classname
    return item


def relabel(item: Datum, label: int) -> Datum:
    """Return a copy of the item with another label."""
    relabelled = type(item).__new__(type(item))  # `copy` takes five times as long
    relabelled.__dict__.update(item.__dict__, _label=label)
    return relabelled


@contextmanager
def many_objects() -> Iterator[None]:
    """Disable the garbage collector, which would repeatedly scan all items while a million of them are made."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ---------------------------------------------------------------------- missing files


def missing_files(paths: Sequence[str]) -> list[str]:
    """Return the paths that are not files. Lists folders, because checking every file takes minutes."""
    folders: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        folder, name = os.path.split(path)
        folders[folder].append(name)
    missing: set[str] = set()
    for folder, names in folders.items():
        present = _file_names(folder) if len(names) >= ENOUGH_TO_LIST else frozenset()
        unsure = (os.path.join(folder, name) for name in names if name not in present)
        missing.update(path for path in unsure if not os.path.isfile(path))
    return [path for path in paths if path in missing] if missing else []


def _file_names(folder: str) -> frozenset[str]:
    """Return the names of the regular files in a folder, without links, which are checked one by one."""
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    except OSError:
        return frozenset()


def rerooted(paths: Sequence[str], folder: str) -> list[str]:
    """Return paths from a moved data folder as paths in `folder`.

    Once one of the files is found in `folder`, all paths with the same beginning are changed. Others stay as they are.
    """
    here = os.path.join(folder, "")
    starts = [here]
    found = []
    for path in paths:
        start = next((start for start in starts if path.startswith(start)), None)
        if start is None:
            start = _other_root(path, folder)
            if start is None:
                found.append(path)
                continue
            starts.append(start)
        found.append(path if start == here else here + path[len(start) :].replace("\\", "/"))
    return found


def _other_root(path: str, folder: str) -> str | None:
    """Return the beginning of a path whose rest names a file in `folder`; None if there is no such file."""
    parts = path.replace("\\", "/").split("/")
    for depth in range(len(parts) - 1, 0, -1):
        rest = "/".join(parts[-depth:])
        if os.path.isfile(os.path.join(folder, rest)):
            return path[: len(path) - len(rest)]
    return None


# ---------------------------------------------------------------------- folders of classes


def class_folders(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the sub-folders of a folder, sorted, without hidden ones."""
    found = [entry.name for entry in visible(folder) if _kind(entry) == "folder"]
    if not found:
        raise UserError(f"There are no class folders in {folder}.")
    return sorted(found)


def list_images(folder: str | os.PathLike[str], left_out: list[str]) -> list[str]:
    """Return the paths of the images in a folder, sorted by name; add all other entries to `left_out`.

    CoOp uses the order of the file system, and its draws depend on it; ours do not.
    """
    paths = []
    for entry in visible(folder):
        if _kind(entry) == "file" and entry.name.lower().endswith(IMAGE_ENDINGS):
            paths.append(entry.path)
        else:
            left_out.append(entry.path)
    if not paths:
        raise UserError(f"The class folder {folder} has no images. Add some, or remove the folder.")
    return sorted(paths)


def report_left_out(left_out: Sequence[str]) -> None:
    """Print how many entries are not images."""
    if left_out:
        print(f"Ignored {len(left_out)} entries that are not images; the first is {printable(left_out[0])}")


def visible(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """Return the entries of a folder in the order of the file system, without hidden ones."""
    try:
        with os.scandir(os.fspath(folder)) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise UserError(f"The folder {folder} cannot be listed: {error.strerror}.") from error


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_file():
            return "file"
        if entry.is_dir():
            return "folder"
    except OSError:  # a link to itself
        pass
    if entry.is_symlink():
        raise UserError(f"{entry.path} is a broken link. Fix or remove it.")
    return "other"


# ---------------------------------------------------------------------- lists in text files


def read_lines(path: str | os.PathLike[str], parse: Callable[[str], Value], form: str) -> list[Value]:
    """Return the parsed lines of a text file, without blank ones; refuse a line that cannot be parsed.

    Args:
        path: The file.
        parse: Parses a line, or raises ValueError, KeyError or IndexError.
        form: What a line should be, for messages.
    """
    try:
        lines = read_text(path).split("\n")
    except UnreadableError as error:
        raise UserError(f"{path} cannot be read: it {error.reason}.") from error
    values = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values.append(parse(line.strip()))
        except (ValueError, KeyError, IndexError) as error:
            raise UserError(f"Line {number} of {path} is {brief(line.strip())}, which is not {form}.") from error
    if not values:
        raise UserError(f"{path} is empty; its lines should be {form}.")
    return values


def paths_of(*splits: Iterable[Datum]) -> list[str]:
    """Return the paths of the items of all splits."""
    return [item.impath for items in splits for item in items]
