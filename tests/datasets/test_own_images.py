"""User images are rotated upright by EXIF; CoOp's datasets are read as CoOp reads them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cocoamix.features.images import UNREADABLE, ImageItems
from cocoamix.run.protocol import describe_protocol, fingerprint
from tests.conftest import write_dataset
from tests.datasets.own import classes, folder, table
from tests.datasets.test_base import eurosat
from tests.features.test_reading import HEIC


def rotate_all(root: Path) -> None:
    """Give every image an EXIF orientation that rotates it by 90 degrees."""
    exif = Image.Exif()
    exif[0x0112] = 6
    for path in root.rglob("*.png"):
        Image.new("RGB", (16, 8), "red").save(path, exif=exif)


def listed(root: Path) -> Any:
    rows = [f"{path.relative_to(root)},{path.parent.name}" for path in sorted(root.rglob("*.png"))]
    (root / "list.csv").write_text("\n".join(["path,classname", *rows]))
    return table(root, subsample_classes="all")


@pytest.mark.parametrize("kind", ["folder", "few", "csv", "coop"])
def test_exif_orientation_is_applied_to_user_datasets_only(tmp_path: Path, kind: str) -> None:
    root = write_dataset(tmp_path) if kind == "coop" else classes(tmp_path, "cat", "dog", "emu")
    rotate_all(root)
    if kind == "csv":
        data = listed(root)
    elif kind == "coop":
        data = eurosat(root)
    else:
        few = {"num_shots": 2, "subsample_classes": "new"} if kind == "few" else {}
        folder(root, **few)
        data = folder(root, **few)  # the second reads the draw that the first has saved
    wanted = (16, 8) if kind == "coop" else (8, 16)
    for part in (data.train_x, data.val, data.test):
        assert ImageItems(None, part)[0]["img"].size == wanted


def protocol(data: Any) -> dict[str, Any]:
    clip: Any = SimpleNamespace(name="tiny", weights_hash="0", source="clip", precision="fp32", activation="gelu")
    return describe_protocol(data.cfg, clip, data, [])


def test_fingerprint_of_user_images_records_how_they_are_read(tmp_path: Path) -> None:
    own = protocol(folder(classes(tmp_path / "own", "cat", "dog")))
    assert own["images"] == "upright by EXIF, more than 8 bits scaled"
    before = {key: value for key, value in own.items() if key != "images"}
    assert fingerprint(own) != fingerprint(before)
    assert "images" not in protocol(eurosat(write_dataset(tmp_path / "coop")))


def test_sixteen_bit_images_are_not_clipped_to_white(tmp_path: Path) -> None:
    root = classes(tmp_path, "cat", "dog")
    for path in root.rglob("*.png"):
        Image.fromarray(np.full((4, 4), 32896, dtype=np.uint16)).save(path)
    assert ImageItems(None, folder(root).test)[0]["img"].getpixel((0, 0)) == (128, 128, 128)


def test_heic_is_recognised_as_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not skipped, and the message says how to read it."""
    root = classes(tmp_path, "cat", "dog")
    (root / "cat" / "IMG_1.HEIC").write_bytes(HEIC)
    data = folder(root)
    assert "not images" not in capsys.readouterr().out
    items = [*data.train_x, *data.val, *data.test]
    place = next(number for number, item in enumerate(items) if item.impath.endswith(".HEIC"))
    assert "pip install pillow-heif" in ImageItems(None, items)[place][UNREADABLE][1]
