"""What a foreign pickle gets access to: nothing of torch that it could change or call."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cocoamix.errors import UserError
from cocoamix.io import checkpoints, safe_pickle

_SET_ATTRIBUTE = b"N}X\x05\x00\x00\x00takenI1\ns\x86b"  # state (None, {"taken": 1}) for the object on the stack


def write_archive(path: Path, pickled: bytes) -> Path:
    """Write an archive as torch.save does, around a pickle made by hand."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
    return path


@pytest.mark.parametrize(
    ("module", "name", "live"),
    [
        ("torch._utils", "_rebuild_tensor_v2", torch._utils._rebuild_tensor_v2),
        ("torch._utils", "_rebuild_parameter", torch._utils._rebuild_parameter),
        ("torch", "TypedStorage", torch.TypedStorage),
        ("torch", "UntypedStorage", torch.UntypedStorage),
        ("torch", "FloatStorage", torch.FloatStorage),
        ("torch.nn", "Linear", nn.Linear),
    ],
)
def test_pickles_cannot_modify_torch(tmp_path: Path, module: str, name: str, live: Any) -> None:
    path = write_archive(tmp_path / "model", f"\x80\x02c{module}\n{name}\n".encode("latin-1") + _SET_ATTRIBUTE + b".")
    with pytest.raises(UserError, match=r"model (cannot be read as|is not) a checkpoint"):
        checkpoints.load(path)
    assert not hasattr(live, "taken")
    assert not hasattr(safe_pickle.Blank, "taken")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch._utils", "_rebuild_tensor_v2"),
        ("torch.nn.parameter", "Parameter"),
        ("torch", "Tensor"),
        ("torch", "Size"),
    ]
    + [("torch", "UntypedStorage"), ("torch.serialization", "_get_layout"), ("collections", "Counter")],
)
def test_loaded_content_has_no_torch_objects(tmp_path: Path, module: str, name: str) -> None:
    """torch's safe loading allows these, too, for rebuilding tensors."""
    pickled = b"\x80\x02}X\x05\x00\x00\x00epoch" + f"c{module}\n{name}\n".encode() + b"s."
    content = checkpoints.load(write_archive(tmp_path / "model", pickled))
    kind = content["epoch"] if isinstance(content["epoch"], type) else type(content["epoch"])
    assert not kind.__module__.startswith("torch")
    assert kind.__module__ in ("builtins", "collections", "cocoamix.io.safe_pickle")


def test_parameters_and_sizes_are_read_as_tensors_and_tuples(tmp_path: Path) -> None:
    content = {"parameter": nn.Parameter(torch.arange(3.0)), "size": torch.Size([2, 3]), "live": Path()}
    torch.save(content, tmp_path / "model")
    read = checkpoints.load(tmp_path / "model")
    assert torch.equal(read["parameter"], torch.arange(3.0))
    assert type(read["size"]) is tuple
    assert read["size"] == (2, 3)
    assert isinstance(read["live"], safe_pickle.Blank)


def test_only_plain_content_is_accepted() -> None:
    assert safe_pickle.is_plain({"a": [1, 2.5, (None, "x")], 3: {torch.ones(1)}, "d": torch.float16})
    for live in (print, torch.nn.Linear, safe_pickle.Blank(), iter([])):
        assert not safe_pickle.is_plain({"a": [live]})
        assert not safe_pickle.is_plain({live: 1})
