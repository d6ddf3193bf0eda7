"""Listing and deletion of stored image features."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from safetensors import SafetensorError, safe_open

from cocoamix.errors import UserError, printable
from cocoamix.io.parts import target_of
from cocoamix.io.texts import UnreadableError, read_json

from .store import ABOUT, FeatureStore


def _stores(folder: Path) -> list[Path]:
    """Return the stores below a folder: sub-folders whose name contains the hash of their about.json."""
    found = []
    for path in sorted(folder.glob(f"*/{ABOUT}")):
        try:
            about = read_json(path)
        except UnreadableError:
            continue
        if isinstance(about, dict) and FeatureStore(folder, about).folder.name == path.parent.name:
            found.append(path.parent)
    return found


_ROWS = re.compile(r"[0-9a-f]{32}\.safetensors")


def _files(store: Path) -> list[Path]:
    """Return all files of a store, including those that a killed writer left."""
    targets = ((path, target_of(path.name) or path.name) for path in store.rglob("*"))
    return [path for path, name in targets if _ROWS.fullmatch(name) or path.with_name(name) == store / ABOUT]


def _rows(path: Path) -> int:
    try:
        if not path.is_file():
            return 0
        with safe_open(path, framework="pt") as file:
            return int(file.get_slice("keys").get_shape()[0])
    except (OSError, SafetensorError):
        return 0


def info(folder: Path) -> None:
    """Print what is stored."""
    stores = _stores(folder)
    if not stores:
        print(f"No features are stored in {folder}.")
    for store in stores:
        about = read_json(store / ABOUT)
        files = _files(store)
        size = sum(path.stat().st_size for path in files) / 1e6
        print(f"{store.name}: {size:,.1f} MB")
        for key, value in about.items():
            print(printable(f"  {key}: {' '.join(str(value).split())}"))
        parts: dict[str, int] = {}
        for path in files:
            if path.suffix == ".safetensors":
                dataset = path.relative_to(store).parts[0]
                parts[dataset] = parts.get(dataset, 0) + _rows(path)
        for dataset, count in sorted(parts.items()):
            print(f"  {dataset}: {count:,} features")


def clear(folder: Path, sure: bool) -> None:
    """Delete all stores below `folder`, and no other files."""
    stores = _stores(folder)
    if not stores:
        print(f"No features are stored in {folder}.")
        return
    size = sum(path.stat().st_size for store in stores for path in _files(store)) / 1e6
    if not sure and not _agreed(f"Delete {len(stores)} stores ({size:,.1f} MB) in {folder}? [y/N] "):
        print("Nothing was deleted.")
        return
    for store in stores:
        for path in sorted(_files(store), key=lambda one: one.name == ABOUT):
            path.unlink(missing_ok=True)
        for path in sorted((one for one in [store, *store.rglob("*")] if one.is_dir()), reverse=True):
            with suppress(OSError):  # the folder contains other files
                path.rmdir()
    print(f"Deleted {len(stores)} stores ({size:,.1f} MB).")


def _agreed(question: str) -> bool:
    try:
        return input(question).strip().lower() == "y"
    except EOFError:
        raise UserError("Deleting needs confirmation, and this is not a terminal. Add --yes.") from None
