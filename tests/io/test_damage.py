"""A flipped bit in a checkpoint: the file is refused, or what is read is identical bit for bit."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from cocoamix.clip.weights import read_weights
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.io.safe_pickle import Blank


def content() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {
        "state_dict": {"ctx": torch.randn(4, 8, generator=generator), "half": torch.ones(3, dtype=torch.float16)},
        "epoch": 3,
        "val_result": 81.25,
        "cocoamix": {"settings": {"OPTIM.LR": 0.002}, "classnames": ["forest", "river"]},
    }


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        kind = ("dtype", "shape", "requires_grad")
        if not isinstance(other, Tensor) or any(getattr(one, key) != getattr(other, key) for key in kind):
            return False
        return one.detach().contiguous().numpy().tobytes() == other.detach().contiguous().numpy().tobytes()
    if isinstance(one, Blank):
        return isinstance(other, Blank) and same(one.state, other.state)
    if isinstance(one, dict):
        return type(one) is type(other) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def flip(whole: bytes, bit: int) -> bytes:
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def refusals(path: Path, bits: list[int]) -> int:
    """Flip each of the bits in turn; return how often the file was refused, and fail on different content."""
    whole, before, refused = path.read_bytes(), checkpoints.load(path), 0
    for bit in bits:
        path.write_bytes(flip(whole, bit))
        try:
            assert same(checkpoints.load(path), before), f"bit {bit} was read as something else"
        except UserError:
            refused += 1
    path.write_bytes(whole)
    return refused


@pytest.mark.parametrize("live", [False, True], ids=["ours", "dassl"])
def test_a_flipped_bit_is_detected(tmp_path: Path, live: bool) -> None:
    path = tmp_path / "model.pth.tar-3"
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)
    more = {"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)} if live else {}
    checkpoints.save(path, {**content(), **more})
    size = path.stat().st_size * 8
    draw = random.Random(0)
    with zipfile.ZipFile(path) as archive:
        directory = 8 * archive.start_dir
        spans = [(one.header_offset, one.header_offset + 2 * one.file_size + 64) for one in archive.infolist()]
    bits = [draw.randrange(size) for _ in range(300)]
    bits += [draw.randrange(8 * start, min(size, 8 * end)) for start, end in spans for _ in range(10)]
    bits += [draw.randrange(directory, size) for _ in range(100)]
    assert refusals(path, bits) > len(bits) // 10


def test_header_that_python_and_torch_read_differently_is_refused(tmp_path: Path) -> None:
    """Marked as a folder in the directory, an entry is complete for Python but empty for torch."""
    path = tmp_path / "model"
    checkpoints.save(path, content())
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        entry = whole.index(b"archive/data/1", archive.start_dir) - 46
    path.write_bytes(flip(whole, 8 * (entry + 38) + 4))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with pytest.raises(UserError, match="model"):
        checkpoints.load(path)


def test_message_names_the_file_and_the_fix(tmp_path: Path) -> None:
    path = tmp_path / "resume.pth"
    checkpoints.save(path, content())
    whole = path.read_bytes()
    start = whole.index(content()["state_dict"]["ctx"].numpy().tobytes())
    path.write_bytes(flip(whole, 8 * start + 3))
    with pytest.raises(UserError, match=r"resume\.pth is damaged: data/0 .* checksum\. Restore .* or delete it"):
        checkpoints.load(path)


def test_files_without_checksums_are_read(tmp_path: Path) -> None:
    """From other projects: the old format has none, and torch has an option not to write any."""
    torch.save(content(), tmp_path / "old", _use_new_zipfile_serialization=False)
    assert same(checkpoints.load(tmp_path / "old"), content())
    if not hasattr(torch.serialization, "set_crc32_options"):
        pytest.skip("this torch always writes them")
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(content(), tmp_path / "without")
    finally:
        torch.serialization.set_crc32_options(True)
    assert same(checkpoints.load(tmp_path / "without"), content())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_flipped_bit_in_an_archive_of_clip_weights(tmp_path: Path) -> None:
    """OpenAI's file format. A file with a state dict is read as a checkpoint."""
    path = tmp_path / "ViT.pt"
    torch.jit.save(torch.jit.script(nn.Linear(3, 2)), str(path))
    whole, draw = path.read_bytes(), random.Random(0)
    with zipfile.ZipFile(path) as archive:
        records = [archive.read(one) for one in archive.infolist() if one.filename.endswith(("data.pkl", "data/0"))]
    for record in records:
        start = whole.index(record)
        for bit in draw.sample(range(8 * start, 8 * (start + len(record))), 50):
            path.write_bytes(flip(whole, bit))
            with pytest.raises(UserError, match=r"ViT\.pt cannot be read as CLIP weights"):
                read_weights(path)
