"""Read and write split files, and draw the splits that CoOp draws without one."""

from __future__ import annotations

import errno
import json
import os
import random
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dassl.data.datasets import Datum

from cocoamix.errors import UserError
from cocoamix.io.files import write_text
from cocoamix.io.screen import detail

from .items import Items, class_folders, list_images, new_item, paths_of, report_left_out
from .missing import refuse_missing
from .writing import may_write

SPLITS = ("train", "val", "test")
SplitItems = tuple[Items, Items, Items]


def read_split(path: str | os.PathLike[str], image_dir: str | os.PathLike[str], bad_images: str = "stop") -> SplitItems:
    """Read a CoOp split file: {"train"|"val"|"test": [[path, label, class name], ...]}.

    Args:
        path: The file.
        image_dir: The folder that image paths are relative to.
        bad_images: DATASET.BAD_IMAGES, the policy for missing images.
    """
    detail(f"Reading split from {path}")
    try:
        if not os.path.isfile(path):  # reading a named pipe would wait for a writer
            raise OSError(errno.ENOENT, "it is not a file")
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        train, val, test = ([_row(row, image_dir) for row in content[split]] for split in SPLITS)
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"{path} is not a split file: it should hold the lists train, val and test of "
            f"[path, label, class name] ({type(error).__name__}: {error})."
        ) from error
    except OSError as error:
        raise UserError(f"The split file {path} cannot be read: {error.strerror}.") from error
    refuse_missing(paths_of(train, val, test), str(path), bad_images)
    return train, val, test


def _row(row: Any, image_dir: str | os.PathLike[str]) -> Datum:
    fits = isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) and isinstance(row[2], str)
    if not fits or not row[0] or not row[2].strip() or isinstance(row[1], (bool, float)):
        raise ValueError(f"a row is {row!r}")
    path, label, classname = row
    return new_item(os.path.join(image_dir, path), int(label), classname)


def write_split(path: str | os.PathLike[str], image_dir: str | os.PathLike[str], splits: SplitItems) -> None:
    """Write a split file byte for byte as CoOp does; print a note if that is not possible."""
    if not may_write():
        print("The split is not saved.")
        return
    start = len(os.path.join(image_dir, ""))
    content = {
        name: [(item.impath[start:].replace(os.sep, "/"), item.label, item.classname) for item in items]
        for name, items in zip(SPLITS, splits, strict=True)
    }
    try:
        write_text(path, json.dumps(content, indent=4))
        detail(f"Saved split to {path}")
    except OSError as error:
        print(f"The split is not saved: {path} cannot be written ({error.strerror}). Another seed draws another split.")


# ---------------------------------------------------------------------- splits drawn as CoOp draws them


def split_folders(
    image_dir: str | os.PathLike[str], ignored: Collection[str] = (), renamed: Mapping[str, str] | None = None
) -> SplitItems:
    """Split a folder of class folders: 50 % train, 20 % val, the rest test. Classes have the names of their folders."""
    groups, left_out = [], list[str]()
    for label, folder in enumerate(name for name in class_folders(image_dir) if name not in ignored):
        paths = list_images(os.path.join(image_dir, folder), left_out)
        groups.append((label, (renamed or {}).get(folder, folder), paths))
    report_left_out(left_out)
    return split_groups(groups)


def split_groups(groups: Collection[tuple[int, str, list[str]]]) -> SplitItems:
    """Split the images of every (label, class name, paths), in that order: 50 % train, 20 % val, the rest test."""
    print("Splitting into 50% train, 20% val, and 30% test")
    splits: SplitItems = [], [], []
    for label, classname, paths in groups:
        random.shuffle(paths)
        train = round(len(paths) * 0.5)
        val = round(len(paths) * 0.2)
        if not (train and val and len(paths) - train - val):
            raise UserError(
                f"The class {classname} has {len(paths)} images, too few for a split into train, val and test: at "
                "least 4 are needed."
            )
        parts = paths[:train], paths[train : train + val], paths[train + val :]
        for items, part in zip(splits, parts, strict=True):
            items += [new_item(path, label, classname) for path in part]
    return splits


def split_trainval(items: Items) -> tuple[Items, Items]:
    """Move 20 % of the items of every class to val; classes keep the order in which they first occur."""
    print("Splitting trainval into 80% train and 20% val")
    groups: dict[int, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        groups[item.label].append(index)
    train, val = [], []
    for indices in groups.values():
        count = round(len(indices) * 0.2)
        if not count:
            raise UserError(
                f"The class {items[indices[0]].classname} has {len(indices)} training images, too few to move some "
                "to val: at least 3 are needed."
            )
        random.shuffle(indices)
        val += [items[index] for index in indices[:count]]
        train += [items[index] for index in indices[count:]]
    return train, val
