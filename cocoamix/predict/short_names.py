"""Short names of images: their paths below the deepest folder that holds all of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from cocoamix.errors import printable


def common_folder(paths: Sequence[str]) -> str:
    """Return the deepest common folder of files; empty if there is none."""
    try:
        return os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    except ValueError:  # no paths, or several drives
        return ""


def short_name(path: str, above: str) -> str:
    """Return the path of a file below a folder of `common_folder`, or the full path if that is empty."""
    full = os.path.abspath(path)
    return printable(os.path.relpath(full, above) if above else full)
