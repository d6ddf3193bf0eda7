"""Reads and writes items as pickles in CoOp's format, without running code from a pickle.

`split_fewshot/shot_N-seed_S.pkl` and ImageNet's `preprocessed.pkl` are dictionaries of lists of Datum.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dassl.data.datasets import Datum

from cocoamix.errors import UserError
from cocoamix.io.files import write_atomically
from cocoamix.io.screen import detail

from .items import Items, many_objects, new_item
from .writing import may_write

PROTOCOL = 4  # readable by every Python that runs CoOp
_STATE = ("_impath", "_label", "_domain", "_classname")  # of a Datum


class _ItemUnpickler(pickle.Unpickler):
    """Allows one class and no functions, because a pickle can call anything that it may name."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        # Not Datum itself: a pickle can also set attributes of a class.
        self.row = type("Row", (), {})

    def find_class(self, module: str, name: str) -> Any:
        if name == "Datum" and module.startswith("dassl.data.datasets"):
            return self.row
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_items(path: Path, splits: Sequence[str], what: str) -> list[Items]:
    """Return the items of the named splits.

    Args:
        path: The file.
        splits: Names of the splits.
        what: What the file should be, for messages.
    """
    try:
        if not path.is_file():  # opening a named pipe would wait for a writer
            raise OSError("it is not a file")
        with many_objects(), path.open("rb") as file:
            unpickler = _ItemUnpickler(file)
            content = unpickler.load()
            return [_items(content[split], unpickler.row) for split in splits]
    except Exception as error:  # a damaged pickle can raise anything
        raise UserError(
            f"{path} is not {what} ({error or type(error).__name__}). Delete it; it will be written again."
        ) from error


def _items(rows: Any, kind: type) -> Items:
    """Turn unpickled rows into items in place, because copying a million takes long."""
    set_attribute = object.__setattr__
    for row in rows:
        if type(row) is Datum:  # the same item a second time
            continue
        if type(row) is not kind:
            raise TypeError(f"a {type(row).__name__} is not an item")
        state = row.__dict__
        path, label, domain, classname = map(state.get, _STATE)
        texts, numbers = type(path) is type(classname) is str, type(label) is type(domain) is int
        if len(state) != len(_STATE) or not texts or not numbers:
            raise TypeError(f"an item is {state}")
        set_attribute(row, "__class__", Datum)
    return list(rows)


def write_items(path: Path, splits: Mapping[str, Items], what: str) -> None:
    """Save the items, unless writing is switched off; print a note if the folder is not writable.

    Args:
        path: The file.
        splits: The items by the name of their split.
        what: What is saved, for the log.
    """
    if not may_write():
        return
    detail(f"Saving {what} to {path}")
    try:
        dump_items(path, splits)
    except OSError as error:  # a read-only data folder: the file is made again next time
        print(f"{path} is not saved, because its folder cannot be written: {error.strerror}")


def dump_items(path: Path, splits: Mapping[str, Items]) -> None:
    """Write the items in CoOp's format."""
    content = {name: [_plain(item) for item in items] for name, items in splits.items()}
    write_atomically(path, lambda file: pickle.dump(content, file, protocol=PROTOCOL))


def _plain(item: Datum) -> Datum:
    return item if type(item) is Datum else new_item(item.impath, item.label, item.classname, item.domain)
