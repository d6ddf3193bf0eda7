"""Where image features come from: the store or the encoder, with the same result."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from cocoamix.clip import FrozenCLIP
from cocoamix.features.images import ImageItems, collate
from cocoamix.features.source import ImageSource, StoreSettings
from cocoamix.features.unreadable import Unreadable

CPU = torch.device("cpu")


def to_tensor(image: Image.Image) -> torch.Tensor:
    return torch.full((3, 32, 32), float(image.getpixel((0, 0))[0]) / 255)  # type: ignore[index]


def loader(tmp_path: Path, is_train: bool = False) -> DataLoader[Any]:
    """Five images, of which the fourth cannot be read."""
    items = []
    for number in range(5):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (4, 4), (40 * number, 0, 0)).save(path)
        items.append(SimpleNamespace(impath=str(path), label=number, domain=0))
    Path(items[3].impath).write_bytes(b"none")
    shown = ImageItems(None, items, transform=to_tensor, is_train=is_train)
    return DataLoader(shown, batch_size=2, collate_fn=collate)


def source(clip: FrozenCLIP, tmp_path: Path, mode: str, raw: bool = False) -> ImageSource:
    settings = StoreSettings(mode, str(tmp_path / "store"), "Set", workers=0, transform="")
    return ImageSource(clip, settings, Unreadable("skip"), raw)


def features(images: ImageSource, shown: DataLoader[Any]) -> tuple[torch.Tensor, list[int], list[int]]:
    found = [(images.encode(i), labels, indices) for i, labels, indices in images.batches(shown, "test", CPU)]
    rows, labels, indices = (torch.cat(side) for side in zip(*found, strict=True))
    return rows, labels.tolist(), indices.tolist()


@pytest.mark.parametrize("raw", [False, True])
def test_features_are_the_same_with_and_without_the_store(tiny_clip: FrozenCLIP, tmp_path: Path, raw: bool) -> None:
    plain = features(source(tiny_clip, tmp_path, "off", raw), loader(tmp_path))
    for _ in ("cold", "warm"):
        stored = features(source(tiny_clip, tmp_path, "test", raw), loader(tmp_path))
        torch.testing.assert_close(stored[0], plain[0])
        assert stored[1:] == plain[1:] == ([0, 1, 2, 4], [0, 1, 2, 4])
    assert bool(((plain[0].norm(dim=1) - 1).abs() < 1e-5).all()) is not raw


def test_unreadable_images_are_noted(tiny_clip: FrozenCLIP, tmp_path: Path) -> None:
    for mode in ("off", "test"):
        images = source(tiny_clip, tmp_path, mode)
        features(images, loader(tmp_path))
        assert [Path(path).name for path in images.unreadable] == ["3.png"]


def test_training_images_are_stored_only_in_mode_all(tiny_clip: FrozenCLIP, tmp_path: Path) -> None:
    for mode, stored in (("test", False), ("all", True)):
        shown = loader(tmp_path, is_train=True)
        source(tiny_clip, tmp_path, mode).set_view(shown, view=1, last=2, part="train-seed1")
        items: Any = shown.dataset
        assert items.view == 1
        assert (items.features is not None) is stored


def test_images_are_encoded_in_batches_of_the_requested_size(
    tiny_clip: FrozenCLIP, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    encode = tiny_clip.encode_image_raw
    monkeypatch.setattr(tiny_clip, "encode_image_raw", lambda batch: sizes.append(len(batch)) or encode(batch))
    for number, wanted in enumerate((0, 3)):
        sizes.clear()
        images = source(tiny_clip, tmp_path / str(number), "all")
        shown = loader(tmp_path)
        list(images.batches(shown, "test", CPU, wanted))
        assert set(sizes) == {wanted or 2}
