"""Find out which parts of each dataset a data folder has. Needs no torch."""

from __future__ import annotations

from pathlib import Path

from cocoamix.dataset_table import OWN, of_kind

from .fetching import kind_of
from .sources import SOURCES, Part, Source


def missing_parts(source: Source, root: Path) -> list[Part]:
    """Return the parts of a dataset that are missing from the data folder."""
    folder = root / source.at(root).folder
    return [part for part in source.parts if not (folder / part.path).exists()]


def state(source: Source, root: Path) -> str:
    """Describe in a few words how much of a dataset the data folder has."""
    source = source.at(root)
    if source.synthetic:
        return "written" if (root / source.folder).is_dir() else "generated when needed"
    if not (root / source.folder).is_dir():
        return "-"
    missing = missing_parts(source, root)
    lacking = [part.path for part in missing if part.required]
    if lacking:
        return f"incomplete: no {', '.join(lacking)}"
    optional = [part.path for part in missing if part.is_split]
    return f"found, without {optional[0]}" if optional else "found"


def list_datasets(root: Path | None) -> None:
    """Print all datasets, and how much of each the data folder has."""
    rows = [("dataset", "configs/datasets/", "folder", f"in {root}" if root else "")]
    for source in SOURCES.values():
        rows.append((source.name, f"{source.config}.yaml", f"{source.folder}/", state(source, root) if root else ""))
    for own in of_kind(OWN):
        rows.append((own.name, f"{own.config}.yaml", "any", f"your own images: {own.homepage}"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]).rstrip())


def how_to_get(source: Source, part: Part, root: Path) -> list[str]:
    """Return lines that describe how to get a missing part."""
    lines = []
    for file in source.providers(part.path):
        place = root / source.target(file)
        end = place / file.name if not file.unpack else f"{place}/"
        if file.drive:
            lines.append(f"gdown {file.drive} -O {end if not file.unpack else file.name}")
        else:
            lines.append(file.url)
        if file.unpack:
            inside = f" (its folder {file.take}/)" if file.take else ""
            lines.append(f"unpacked{inside} to {end}" + (f", and {file.inner} there" if file.inner else ""))
        elif not file.drive:
            lines.append(f"saved as {end}")
        if file.checksum:
            lines.append(f"{kind_of(file.checksum)} {file.checksum}")
        if file.note:
            lines.append(file.note)
    return lines
