"""Small folders of images for the tests of user datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from tests.datasets.test_base import config


def write_image(path: Path, shade: int = 0) -> Path:
    """Write a small image and its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), (shade % 256, 40, 90)).save(path)
    return path


def classes(root: Path, *names: str, count: int = 10) -> Path:
    """Write a folder of images for each class."""
    for name in names:
        for number in range(count):
            write_image(root / name / f"{number}.png", number)
    return root


def folder(root: Path, **dataset: Any) -> Any:
    from cocoamix.datasets.own.folder import ImageFolderDataset

    return ImageFolderDataset(config(root, **dataset))


def table(root: Path, **dataset: Any) -> Any:
    from cocoamix.datasets.own.csv_file import CSVDataset

    return CSVDataset(config(root, **dataset))


def below(items: Any, root: Path) -> list[str]:
    """Return the items' paths below the root."""
    return [Path(item.impath).relative_to(root.resolve()).as_posix() for item in items]
