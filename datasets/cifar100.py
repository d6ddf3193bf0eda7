"""CIFAR100: a hundred classes of 32-pixel images, from the official python archive."""

from __future__ import annotations

import mmap
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from dassl.data.datasets import DATASET_REGISTRY, Datum
from PIL import Image

from cocoamix.clip.class_names import class_words
from cocoamix.errors import UserError, printable
from cocoamix.features.reading import file_identity
from cocoamix.registry import register

from .common.base import FewShotDataset, Items, SplitItems

ARCHIVE = "cifar-100-python"
SHAPE = 3, 32, 32
ROW = 3 * 32 * 32
VALIDATION = 50  # images per class


class StoredImages:
    """The pixels of one file of the archive, memory-mapped.

    All processes map the same pages, and loader workers receive only the path, so the array is never copied.

    Attributes:
        path: The file.
        start: Offset of the pixels; None for a file that was pickled again and does not have them in one block. Each
            process then reads the whole file.
    """

    def __init__(self, path: str, start: int | None) -> None:
        self.path, self.start = path, start
        self._pixels: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "start": self.start, "_pixels": None}

    def image(self, number: int) -> Image.Image:
        """Return an image by its position in the file."""
        if self._pixels is None:
            self._pixels = self._open()
        first = (self.start or 0) + number * ROW
        channels = self._pixels[first : first + ROW].reshape(SHAPE)
        return Image.fromarray(np.ascontiguousarray(channels.transpose(1, 2, 0)))

    def _open(self) -> Any:
        if self.start is not None:
            return np.memmap(self.path, dtype=np.uint8, mode="r")
        labels, array = _read(Path(self.path), "fine_labels", "data")
        return np.frombuffer(_pixels_in(Path(self.path), array, len(labels)), dtype=np.uint8)


class StoredDatum(Datum):
    """An item whose image is in the archive. Its path, such as cifar-100-python/train/00042, is only a name."""

    def __init__(self, images: StoredImages, number: int, label: int, classname: str) -> None:
        # Not super().__init__, which checks the file.
        self._impath = f"{ARCHIVE}/{Path(images.path).name}/{number:05d}"
        self._label, self._domain, self._classname = label, 0, classname
        self._images, self._number = images, number

    @property
    def archive(self) -> str:
        """The file that holds the image."""
        return self._images.path

    @property
    def identity(self) -> str:
        """A string that changes with the image: the identity of the file and the position."""
        return f"{file_identity(self._images.path)}|{self._number}"

    def draw(self) -> Image.Image:
        """Return the image."""
        return self._images.image(self._number)


@register(DATASET_REGISTRY)
class CIFAR100(FewShotDataset):
    """The last 50 training images of every class are for validation, whatever the seed.

    Real Dassl has its own CIFAR100. If it is installed, this one is called cocoamix.CIFAR100.
    """

    folder = ARCHIVE

    def read_items(self) -> SplitItems:
        archive = self._find_archive()
        names = read_names(archive)
        trainval, test = (read_images(archive / split, names) for split in ("train", "test"))
        left = dict.fromkeys(range(len(names)), 0)
        for item in trainval:
            left[item.label] += 1
        train: Items = []
        val: Items = []
        for item in trainval:
            (train if left[item.label] > VALIDATION else val).append(item)
            left[item.label] -= 1
        return train, val, test

    def _find_archive(self) -> Path:
        """Return the folder of the archive: in cifar100/, or in the data root, where torchvision unpacks it."""
        root = self.find_root()
        inside, beside = root / "cifar100" / ARCHIVE, root / ARCHIVE
        archive = inside if inside.is_dir() or not beside.is_dir() else beside
        if not archive.is_dir():
            raise UserError(
                f"The dataset CIFAR100 is not in {root}: there is neither {inside} nor {beside}. " + self._advice()
            )
        for name in ("meta", "train", "test"):
            if not (archive / name).is_file():
                raise UserError(f"The dataset CIFAR100 is incomplete: {archive / name} is missing. " + self._advice())
        self.dataset_dir = str(inside.parent if archive == inside else archive)
        return archive

    def locate(self, items: Items, origin: str) -> Items:
        """Return the items unchanged: their paths are names that do not depend on the data folder."""
        return items


# ---------------------------------------------------------------------- the archive's three files


class _Array:
    """Placeholder for a pickled array or its type: keeps the arguments and builds nothing."""

    state: Any = None

    def __init__(self, *made_of: Any) -> None:
        self.made_of = made_of

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Bytes:
    """Python 3's representation of bytes in older pickle protocols: a call that encodes a text.

    It has no attributes, because a pickle can set them.
    """

    __slots__ = ()

    def __call__(self, text: str = "", encoding: str = "latin1") -> bytes:
        if encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"it asks for the encoding {encoding}"[:100])
        return text.encode("latin-1")


_ARRAYS = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),  # from protocol 5 on
    ("numpy._core.numeric", "_frombuffer"),
}
_BYTES = {("_codecs", "encode"), ("__builtin__", "bytes"), ("builtins", "bytes")}


class _ArchiveUnpickler(pickle.Unpickler):
    """Allows built-in types, and arrays as inert containers; nothing that can run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _BYTES:
            return _Bytes()
        if (module, name) not in _ARRAYS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _Array


def _read(path: Path, *keys: str) -> list[Any]:
    try:
        if not path.is_file():  # opening a named pipe would wait for a writer
            raise OSError("it is not a file")
        with path.open("rb") as file:
            content = _ArchiveUnpickler(file, encoding="bytes").load()  # Python 2 wrote it
        named = {key.decode() if isinstance(key, bytes) else key: value for key, value in content.items()}
        return [named[key] for key in keys]
    except Exception as error:  # a damaged pickle can raise anything
        raise _not_official(path, f"{type(error).__name__}: {error}") from error


def _not_official(path: Path, reason: str) -> UserError:
    return UserError(f"{path} is not a file of CIFAR-100's python archive ({reason}). Unpack the archive again.")


def read_names(archive: Path) -> list[str]:
    """Return the class names in the order of their labels, with spaces."""
    path = archive / "meta"
    (names,) = _read(path, "fine_label_names")
    listed = names if isinstance(names, list) else []
    texts = [name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in listed]
    if not texts or not all(isinstance(text, str) and text.strip() and printable(text) == text for text in texts):
        raise _not_official(path, "its fine_label_names are not names")
    return [class_words(text) for text in texts]


def read_images(path: Path, names: list[str]) -> Items:
    """Return the items of `train` or `test` in the order of the file."""
    labels, array = _read(path, "fine_labels", "data")
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < len(names) for label in labels):
        raise _not_official(path, f"its fine_labels are not numbers below {len(names)}")
    start = _find_pixels(path, array, len(labels))
    images = StoredImages(os.fspath(path), start)
    return [StoredDatum(images, number, label, names[label]) for number, label in enumerate(labels)]


def _find_pixels(path: Path, array: Any, count: int) -> int | None:
    """Return the offset of the pixels in the file; None if they are not in one block."""
    raw = _pixels_in(path, array, count)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(raw[:ROW])
        return start if start >= 0 and content[start : start + len(raw)] == raw else None


def _pixels_in(path: Path, array: Any, count: int) -> bytes:
    """Return the pixels of `count` images from a pickled array."""
    try:
        if array.state is None:  # made from a buffer
            raw, kind, shape, order = array.made_of
            by_columns = order != "C"
        else:
            _version, shape, kind, by_columns, raw = array.state
        bytes_in_rows = kind.made_of[0] in ("u1", b"u1") and tuple(shape) == (count, ROW) and not by_columns
        if not bytes_in_rows or not isinstance(raw, (bytes, bytearray)) or len(raw) != count * ROW or not count:
            raise ValueError
    except (AttributeError, IndexError, TypeError, ValueError):
        raise _not_official(path, f"its data is not {count} rows of {ROW} bytes") from None
    return bytes(raw)
