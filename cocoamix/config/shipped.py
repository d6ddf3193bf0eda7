"""The shipped configurations: find one by name, or copy them to a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from cocoamix.errors import UserError, known_names, nearest
from cocoamix.io.files import write_atomically

PREFIX = "cocoamix:"
_KINDS = ("", "trainers/", "datasets/")  # prefixes that a name may omit


def folder() -> Path:
    """Return the folder of the configurations: in the installed package, or at the top of a source tree."""
    package = Path(__file__).resolve().parents[1]
    for place in (package / "configs", package.parent / "configs"):
        if (place / "trainers").is_dir():
            return place
    raise UserError(f"The configurations are missing from {package}. Install the package again.")


def names() -> list[str]:
    """Return every configuration as `trainers/<Trainer>/<name>.yaml` or `datasets/<name>.yaml`."""
    place = folder()
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*.yaml"))


def locate(path: str, below: Path | None = None) -> Path:
    """Return the file that `cocoamix:CoOp/vit_b16.yaml` or a path names.

    The documentation writes `configs/trainers/CoOp/vit_b16.yaml`. With an installed package there is no such folder, so
    if the file does not exist, the package's own file of that name is used, with a note on stderr.

    Args:
        path: A name with the prefix `cocoamix:`, or the path of a file, which need not exist.
        below: The folder that a relative path starts from, if it is not the working directory.
    """
    if not path.startswith(PREFIX):
        file = (below or Path()) / path
        own = path.removeprefix("configs/")
        if own == path or os.path.exists(file) or own not in names():
            return file
        _note(f"{path} does not exist; using the package's own, {PREFIX}{own.removeprefix('trainers/')}")
        return folder() / own
    name, known = path.removeprefix(PREFIX), names()
    for kind in _KINDS:
        if kind + name in known:
            return folder() / (kind + name)
    short = [one.removeprefix("trainers/") for one in known]
    raise UserError(
        f"There is no configuration {path} in the package.{nearest(name, short)} "
        "`cocoamix plugin --configs DIR` copies all of them to DIR."
    )


@lru_cache
def _note(line: str) -> None:
    """Print a line on standard error, once: a benchmark reads the configurations of many runs."""
    print(line, file=sys.stderr, flush=True)


def copy_out(target: Path, trainers: Sequence[str] = ()) -> tuple[list[Path], list[Path]]:
    """Copy the configurations to a folder, in CoOp's layout. An existing file that differs is left alone.

    Args:
        target: The folder.
        trainers: Copy only the configurations of these trainers; by default those of all trainers and datasets.

    Returns:
        The files written, and those left alone.
    """
    available = sorted({name.split("/")[1] for name in names() if name.startswith("trainers/")})
    for trainer in trainers:
        if trainer not in available:
            raise UserError(f"There are no configurations of {trainer}.{known_names(trainer, available)}")
    chosen = [name for name in names() if not trainers or name.startswith(tuple(f"trainers/{t}/" for t in trainers))]
    written, kept = [], []
    for name in chosen:
        content, file = (folder() / name).read_bytes(), target / name
        if file.exists():
            if not file.is_file() or file.read_bytes() != content:
                kept.append(file)
            continue
        try:
            write_atomically(file, lambda out, content=content: out.write(content))  # type: ignore[misc]
        except OSError as error:
            raise UserError(f"{file} cannot be written: {error.strerror}.") from error
        written.append(file)
    return written, kept
