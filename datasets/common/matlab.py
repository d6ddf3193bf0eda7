"""Reads Matlab files, in which two of the datasets store their labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cocoamix.errors import UserError


def read_matlab(path: Path, key: str, instead: str) -> Any:
    """Return the array `key` of a .mat file.

    Args:
        path: The file.
        key: Name of the array.
        instead: The split file that makes it unnecessary, for messages.
    """
    if not path.is_file():
        raise UserError(f"Neither {instead} nor {path} exists; one of them is needed.")
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise UserError(
            f"Reading {path} needs the package scipy: pip install scipy. With CoOp's {instead} it is not needed."
        ) from error
    try:
        return loadmat(str(path))[key]
    except Exception as error:  # scipy can raise anything for a damaged file
        raise UserError(f"{path} is not a Matlab file with `{key}` ({type(error).__name__}: {error}).") from error
