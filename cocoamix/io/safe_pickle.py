"""Reading other people's pickles for their tensors, without running anything that is in them.

Tensors and plain containers are read; an object of any other class becomes an inert blank.
"""

from __future__ import annotations

import os
import pickle
import types
import zipfile
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor


class Blank:
    """What an object of an unknown class becomes. It keeps the state it is given, and does nothing with it."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.state: Any = None

    def __call__(self, *args: object, **kwargs: object) -> Blank:
        return Blank()

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def append(self, item: object) -> None:
        pass

    def extend(self, items: object) -> None:
        pass


_TENSOR_PARTS = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): torch.Size,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): torch._utils._rebuild_parameter,
}


class InertUnpickler(pickle.Unpickler):
    """Knows how tensors are rebuilt, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and (name.endswith("Storage") or isinstance(getattr(torch, name, None), torch.dtype)):
            return getattr(torch, name, Blank)
        return _TENSOR_PARTS.get((module, name), Blank)


# torch.load takes its unpickler from a module.
inert_pickle: Any = types.ModuleType("inert_pickle")
inert_pickle.Unpickler = InertUnpickler
inert_pickle.load = lambda file, **options: InertUnpickler(file, **options).load()


def is_torchscript(path: str | os.PathLike[str]) -> bool:
    """Tell a TorchScript archive, whose loading by torch would run the code in it."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


class _ArchiveUnpickler(pickle.Unpickler):
    """Reads the objects of a TorchScript archive: modules as blanks with their attributes, tensors as tensors."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(archive.open(f"{root}/data.pkl"))
        self._archive, self._root = archive, root

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _view
        return OrderedDict if (module, name) == ("collections", "OrderedDict") else Blank

    def persistent_load(self, identity: Any) -> Tensor:
        _, dtype, key, _, _ = identity
        content = bytearray(self._archive.read(f"{self._root}/data/{key}"))
        return torch.frombuffer(content, dtype=dtype) if content else torch.empty(0, dtype=dtype)


def _view(storage: Tensor, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *rest: object) -> Tensor:
    return storage.as_strided(size, stride, offset).clone()


def read_torchscript(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the parameters and buffers of a TorchScript archive by name, without running its code."""
    with zipfile.ZipFile(path) as archive:
        root = next(name for name in archive.namelist() if name.endswith("/data.pkl")).rsplit("/", 1)[0]
        return _tensors(_ArchiveUnpickler(archive, root).load())


def _tensors(module: Any, prefix: str = "") -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, value in (module.state if isinstance(module.state, dict) else {}).items():
        if isinstance(value, Tensor):
            found[f"{prefix}{name}"] = value
        elif isinstance(value, Blank):
            found.update(_tensors(value, f"{prefix}{name}."))
    return found
