"""Items in pickles, as CoOp keeps them: written for CoOp to read, read without running what may be in them.

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
from .writing import keeps

PROTOCOL = 4  # every Python that runs CoOp reads it
_STATE = ("_impath", "_label", "_domain", "_classname")  # of a Datum


class _ItemUnpickler(pickle.Unpickler):
    """Knows one class, and no function: a pickle can otherwise run any code."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        # Not Datum itself: a pickle may also set attributes of a class that it is given.
        self.row = type("Row", (), {})

    def find_class(self, module: str, name: str) -> Any:
        if name == "Datum" and module.startswith("dassl.data.datasets"):
            return self.row
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read_items(path: Path, splits: Sequence[str], what: str) -> list[Items]:
    """Return the items of the named splits, as they were written; `what` says what the file should be."""
    try:
        if not path.is_file():  # opening a named pipe would wait for a writer
            raise OSError("it is not a file")
        with many_objects(), path.open("rb") as file:
            unpickler = _ItemUnpickler(file)
            content = unpickler.load()
            return [_items(content[split], unpickler.row) for split in splits]
    except Exception as error:  # whatever a damaged pickle can do, it is the file that is wrong
        raise UserError(
            f"{path} is not {what} ({error or type(error).__name__}). Delete it, and it is made again."
        ) from error


def _items(rows: Any, kind: type) -> Items:
    """Turn what was read into items, in place: a million copies would take their time."""
    turn = object.__setattr__
    for row in rows:
        if type(row) is Datum:  # the same item a second time
            continue
        if type(row) is not kind:
            raise TypeError(f"a {type(row).__name__} is where an item should be")
        state = row.__dict__
        path, label, domain, classname = map(state.get, _STATE)
        texts, numbers = type(path) is type(classname) is str, type(label) is type(domain) is int
        if len(state) != len(_STATE) or not texts or not numbers:
            raise TypeError(f"an item is {state}")
        turn(row, "__class__", Datum)
    return list(rows)


def write_items(path: Path, splits: Mapping[str, Items], what: str) -> None:
    """Keep the items, as plain Datum, unless nothing is to be kept; say so where the folder cannot be written."""
    if not keeps():
        return
    detail(f"Saving {what} to {path}")
    try:
        dump_items(path, splits)
    except OSError as error:  # a read-only data folder: it is made again next time
        print(f"{path} is not kept, its folder cannot be written: {error.strerror}")


def dump_items(path: Path, splits: Mapping[str, Items]) -> None:
    """Write the items as CoOp reads them."""
    content = {name: [_plain(item) for item in items] for name, items in splits.items()}
    write_atomically(path, lambda file: pickle.dump(content, file, protocol=PROTOCOL))


def _plain(item: Datum) -> Datum:
    return item if type(item) is Datum else new_item(item.impath, item.label, item.classname, item.domain)
