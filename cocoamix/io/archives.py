"""Verifies the checksums of the zip archives that torch writes, which torch itself does not do."""

from __future__ import annotations

import os
import zipfile
import zlib

import torch

_MAGIC = b"PK\x03\x04"  # first bytes by which torch distinguishes an archive from a pickle of its old format


def _is_archive(path: str | os.PathLike[str]) -> bool:
    """Return whether torch would read a file as an archive."""
    with open(path, "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def damaged_part(path: str | os.PathLike[str]) -> str | None:
    """Return the first part of an archive that does not match its checksum; None if all do, or if it has no checksums.

    The parts are read as torch reads them, because Python and torch can interpret a damaged header differently.
    A pickle of the old format has no checksums. An archive written without checksums
    (`torch.serialization.set_crc32_options`) has 0 for every part.
    """
    if not _is_archive(path):
        return None
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
    if not any(part.CRC for part in parts):
        return None
    reader = torch._C.PyTorchFileReader(os.fspath(path))
    for part in parts:
        name = part.filename.partition("/")[2]  # torch leaves the name of the archive out
        if zlib.crc32(reader.get_record(name)) != part.CRC:
            return name
    return None
