"""Download the missing parts of a dataset, after confirmation, and unpack them in CoOp's layout."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cocoamix.errors import UserError

from .fetching import fetch, fetch_drive, kind_of, size_of, verify
from .parts import missing_parts
from .sources import Remote, Source
from .unpack import unpack


def download(source: Source, root: Path, agreed: bool = False) -> bool:
    """Download the missing parts of a dataset; return whether it is complete afterwards."""
    source = source.at(root)
    if source.synthetic:
        print(f"{source.name} is generated when needed; there is nothing to download.")
        return True
    if root.exists() and not root.is_dir():
        raise UserError(f"--root {root} is not a folder. Name the folder that holds the datasets' folders.")
    missing = [part.path for part in missing_parts(source, root)]
    if not missing:
        print(f"{source.name}: {root / source.folder} is complete.")
        return True
    by_hand = [path for path in missing if not source.providers(path)]
    if by_hand:
        print(f"{source.name}: {', '.join(by_hand)} cannot be downloaded from here. {source.by_hand}")
    files = [file for file in source.files if set(file.gives) & set(missing)]
    if not files:
        return False
    _ask(source, files, root, agreed)
    for file in files:
        try:
            _get(source, file, root)
        except UserError as error:  # other files may still be available
            print(f"error: {error}", file=sys.stderr)
        except OSError as error:  # such as a full disk; other files would fail, too
            where = error.filename or root / source.folder
            raise UserError(
                f"{file.name} cannot be written to {where}: {error.strerror or error}. The received part is "
                "kept, and the same command resumes from there."
            ) from error
    lacking = [part.path for part in missing_parts(source, root)]
    if lacking:
        print(f"{source.name}: still missing: {', '.join(lacking)}.")
    else:
        print(f"{source.name} is complete. Next: cocoamix data check {source.name} --root {root}")
    return not lacking


def _ask(source: Source, files: list[Remote], root: Path, agreed: bool) -> None:
    """Show the files, their sizes and the licence, and ask for confirmation."""
    print(f"{source.title}: {source.homepage}\nlicence: {source.licence}\nto download:")
    known = 0
    for file in files:
        archive = root / source.folder / file.name
        size = file.size or (size_of(file.url) if file.url and not archive.exists() else 0)
        known += size
        about = "already downloaded" if archive.exists() else f"{size / 1e6:,.0f} MB" if size else "size not known"
        print(f"  {file.name} ({about}) from {file.url or f'Google Drive, {file.drive}'}")
        if file.note:
            print(f"    {file.note}")
        if file.checksum:
            print(f"    verified by its {kind_of(file.checksum)}")
        else:
            print("    NOT verified: no checksum is published, so a changed or damaged file would not be noticed")
    where = next(folder for folder in (root, *root.resolve().parents) if folder.is_dir())
    free = shutil.disk_usage(where).free
    if 2 * known > free:  # an archive and its content
        print(f"note: {root} has {free / 1e6:,.0f} MB free, which may not be enough for an archive and its content")
    if agreed:
        return
    if not sys.stdin.isatty():
        raise UserError("A download needs confirmation, and this is not a terminal. Add --yes.")
    if input(f"Download to {root}? [y/N] ").strip().lower() not in ("y", "yes"):
        raise UserError("Nothing was downloaded.")


def _get(source: Source, file: Remote, root: Path) -> None:
    """Download one file, unless it is already there, and unpack it if it is an archive."""
    archive = root / source.folder / file.name
    if not archive.is_file():
        if file.drive:
            fetch_drive(file.drive, archive, file.checksum)
        else:
            fetch(file.url, archive, file.checksum)
    elif file.unpack:  # from an earlier run, or from elsewhere
        verify(archive, file.checksum, file.name)
    if file.unpack:
        print(f"Unpacking {archive}")
        unpack(archive, root / source.target(file), file.take, file.inner)
        print(f"{archive} is kept, but no longer needed")
