"""Name the user's own datasets after their folders or tables, not after the classes that read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cocoamix.errors import printable, shorten
from cocoamix.registry import plain_name
from cocoamix.report.names import is_dataset

_CLASSES = ("ImageFolderDataset", "CSVDataset")
# Folder names that mean little without the parent folder.
_GENERAL = {"images", "image", "imgs", "img", "photos", "pictures", "data", "dataset", "train"}
_LONGEST = 60  # characters


def own_name(dataset: str, config: Mapping[str, Any]) -> str:
    """Return the name of the user's own dataset, or "" for any other dataset or an unknown folder.

    Args:
        dataset: The name of the dataset's class.
        config: Dotted settings of the run.
    """
    if plain_name(dataset) not in _CLASSES:
        return ""
    folders = [*_parts(config.get("DATASET.ROOT")), *_parts(config.get("DATASET.FOLDER"))]
    name = folders[-1] if folders else ""
    if name.lower() in _GENERAL and len(folders) > 1:
        name = "/".join(folders[-2:])
    table = _parts(config.get("DATASET.CSV"))
    if table:  # one folder may hold several tables
        stem = re.sub(r"\.[ct]sv$", "", table[-1], flags=re.IGNORECASE)
        name = f"{name} ({stem})" if name else stem
    if is_dataset(name):  # a folder with the name of a published dataset may hold other images
        name = f"{name} (own images)"
    return shorten(printable(name), _LONGEST)


def _parts(path: Any) -> list[str]:
    """Return the named folders of a path, in Unix's or Windows' notation."""
    parts = re.split(r"[/\\]+", path) if isinstance(path, str) else []
    return [part for part in parts if part not in ("", ".", "..", "~") and not part.endswith(":")]
