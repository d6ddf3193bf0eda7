"""Reads the tensors of untrusted pickles without running any code.

Tensors and plain containers are read; an object of any other class becomes an inert blank.
"""

from __future__ import annotations

import io
import os
import pickle
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Blank:
    """Replaces an object of an unknown class. It stores its state and does nothing."""

    state: Any = None  # on the class, because a pickle can create one without calling __init__

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __call__(self, *args: object, **kwargs: object) -> Blank:
        """Return another blank."""
        return Blank()

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def append(self, item: object) -> None:
        """Ignore an item."""

    def extend(self, items: object) -> None:
        """Ignore items."""


class _Rebuild:
    """Replaces a function of torch that a pickle names.

    A pickle can set attributes of its objects, so it never gets a function or class of torch itself.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it sets the state of a function")


def _tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *rest: object) -> Tensor:
    """Rebuild a tensor without the hooks and attributes in the pickle."""
    rebuilt: Tensor = torch._utils._rebuild_tensor(storage, offset, size, stride)
    return rebuilt


def _parameter(tensor: Tensor, *rest: object) -> Tensor:
    return tensor


class InertUnpickler(pickle.Unpickler):
    """Resolves only the names that rebuild tensors."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what rebuilds a tensor or a plain container, else a blank."""
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Rebuild(_tensor)
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return _Rebuild(_parameter)
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        return OrderedDict if (module, name) == ("collections", "OrderedDict") else Blank


# torch.load takes its unpickler from a module, and resolves storages itself.
inert_pickle: Any = types.ModuleType("inert_pickle")
inert_pickle.Unpickler = InertUnpickler
inert_pickle.load = lambda file, **options: InertUnpickler(file, **options).load()

_PLAIN = (str, bytes, int, float, complex, type(None), torch.dtype, torch.device)


def is_plain(value: Any) -> bool:
    """Return whether a value consists only of tensors, plain containers and plain values, at all levels."""
    if isinstance(value, dict):
        return all(is_plain(key) and is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple, set)):
        return all(map(is_plain, value))
    return isinstance(value, (Tensor, *_PLAIN))


def is_torchscript(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a TorchScript archive, which torch would load by running its code."""
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
        # Read as a whole, because only then is the checksum verified.
        super().__init__(io.BytesIO(archive.read(f"{root}/data.pkl")))
        self._archive, self._root = archive, root

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Rebuild(_view)
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
