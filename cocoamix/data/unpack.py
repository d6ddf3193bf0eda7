"""Unpack untrusted archives: only regular files and folders, and none outside the target."""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from cocoamix.errors import UserError

# Compression hardly shrinks images, and shrinks text to about a tenth. An archive far beyond that may be a zip bomb.
MOST_TIMES = 20  # size of the content divided by that of the archive
MORE_BYTES = 1_000_000_000  # added to that limit, for small archives
MOST_MEMBERS = 3_000_000  # ImageNet has 1.3 million


@dataclass(frozen=True)
class Member:
    """A file in an archive, or a folder if `open` is None."""

    name: str
    open: Callable[[], IO[bytes]] | None
    size: int = 0  # as the archive states it; no more than this can be read


def unpack(archive: Path, target: Path, take: str = "", inner: str = "") -> None:
    """Unpack the content of an archive, or of its folder `take`, to `target`.

    Everything is unpacked next to `target` and moved there when it is complete. Existing files are never replaced.

    Args:
        archive: A zip or tar archive.
        target: The folder to unpack to.
        take: The folder in the archive to unpack; by default everything.
        inner: An archive inside the archive, below `take`, which is unpacked where it is.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target.parent))
    try:
        _write_members(archive, aside)
        source = aside / take if take else aside
        if not source.is_dir():
            held = ", ".join(sorted(os.listdir(aside))[:5]) or "nothing"
            raise UserError(f"{archive} has no folder {take}/, but {held}. Unpack it yourself.")
        if inner:
            if not (source / inner).is_file():
                raise UserError(f"{archive} has no {inner}. Unpack it yourself.")
            _write_members(source / inner, source)
            (source / inner).unlink()
        _move_in(source, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _move_in(source: Path, target: Path) -> None:
    names = sorted(os.listdir(source))
    there = [name for name in names if target.joinpath(name).exists()]
    if there:
        raise UserError(f"{target / there[0]} exists already and is not replaced. Move it elsewhere, then try again.")
    target.mkdir(parents=True, exist_ok=True)
    for name in names:
        os.replace(source / name, target / name)


def _write_members(archive: Path, target: Path) -> None:
    try:
        most, unpacked = MOST_TIMES * archive.stat().st_size + MORE_BYTES, 0
        for number, member in enumerate(_members(archive), start=1):
            unpacked += member.size
            if unpacked > most or number > MOST_MEMBERS:
                raise _too_large(archive, most)
            path = _inside(target, member.name, archive)
            if member.open is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with member.open() as content, path.open("wb") as file:
                shutil.copyfileobj(content, file, 1 << 20)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise UserError(
            f"{archive} is damaged or the wrong file ({error}). Delete it and download it again."
        ) from error
    except NotImplementedError as error:
        raise UserError(f"{archive} cannot be unpacked by Python ({error}). Unpack it yourself.") from error
    except OSError as error:
        raise UserError(f"{archive} cannot be unpacked: {error.strerror or error}.") from error


def _members(archive: Path) -> Iterator[Member]:
    if not archive.is_file():  # opening a named pipe would wait for a writer
        raise UserError(f"{archive} is not a file.")
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive)
    elif _is_tar(archive):
        yield from _tar_members(archive)
    else:
        with archive.open("rb") as file:
            start = file.read(40)
        raise UserError(
            f"{archive} is neither a zip nor a tar archive; it begins with {start!r}. It may be a login "
            "page or an incomplete download. Delete it and download it again."
        )


def _is_tar(archive: Path) -> bool:
    try:
        return tarfile.is_tarfile(archive)
    except (EOFError, zlib.error, lzma.LZMAError, OSError):
        return False


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as content:
        for info in content.infolist():
            if not info.filename:
                raise _refused(archive, "", "has no name")
            mode = info.external_attr >> 16
            # Some writers omit the mode, but never for links and devices.
            if mode and stat.S_IFMT(mode) and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise _refused(archive, info.filename, "is a link or a device")
            if info.flag_bits & 1:
                raise _refused(archive, info.filename, "is encrypted")
            if info.is_dir():
                yield Member(info.filename, None)
            else:
                yield Member(info.filename, lambda info=info: content.open(info), info.file_size)  # type: ignore[misc]


def _tar_members(archive: Path) -> Iterator[Member]:
    with tarfile.open(archive) as content:
        for info in content:
            if not (info.isreg() or info.isdir()):
                raise _refused(archive, info.name, "is a link or a device")
            if info.isdir():
                yield Member(info.name, None)
            else:
                yield Member(info.name, lambda info=info: _opened(content, info, archive), info.size)  # type: ignore[misc]
        # Read on to the end: the checksum of a compressed archive follows the last member.
        rest, most = 0, MOST_TIMES * archive.stat().st_size + MORE_BYTES
        while content.fileobj is not None and (block := content.fileobj.read(1 << 20)):
            rest += len(block)
            if rest > most:
                raise _too_large(archive, most)


def _opened(content: tarfile.TarFile, info: tarfile.TarInfo, archive: Path) -> IO[bytes]:
    # In addition to our own checks, apply those of Python, if this version has them.
    data_filter = getattr(tarfile, "data_filter", None)
    if data_filter is not None:
        try:
            data_filter(info, str(archive.parent))
        except tarfile.TarError as error:
            raise _refused(archive, info.name, str(error)) from error
    opened = content.extractfile(info)
    if opened is None:
        raise _refused(archive, info.name, "is not a file")
    return opened


def _inside(target: Path, name: str, archive: Path) -> Path:
    """Return the path of a member below the target; refuse any other path."""
    parts = PurePosixPath(name).parts
    outside = not name or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name
    if outside or (parts and ":" in parts[0][1:2]):  # C:...
        raise _refused(archive, name, "would be written outside the target")
    path = target.joinpath(*parts)
    if not path.resolve().is_relative_to(target.resolve()):
        raise _refused(archive, name, "would be written outside the target")
    return path


def _too_large(archive: Path, most: int) -> UserError:
    return UserError(
        f"{archive} is refused: it would unpack to more than {most / 1e9:,.1f} GB or {MOST_MEMBERS:,} files, far more "
        "than its size suggests. Nothing was kept. If you trust it, unpack it yourself."
    )


def _refused(archive: Path, name: str, why: str) -> UserError:
    return UserError(f"{archive} is refused: its member {name!r} {why}. Nothing was kept.")
