"""The store of frozen image features: each image is encoded once for all methods, subsets and runs.

A feature is looked up by what it depends on. Weights, package, precision and transform identify a folder; the image
(path, size, modification time) and its augmentation identify a row. Files of rows are written atomically under
unique names and never changed, so several runs may write at once, and a killed run leaves nothing that another would
read. Every file has a checksum; a damaged one is deleted and its images are encoded again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from cocoamix.io.files import write_atomically, write_json
from cocoamix.io.parts import sweep_once
from cocoamix.io.paths import cache_folder, expand_home

ABOUT = "about.json"
KEY_BYTES = 16
_CHECKSUM = "checksum"


def default_folder() -> Path:
    """Return the folder of the store if CACHE.DIR is not set."""
    return cache_folder("Set HOME, COCOAMIX_CACHE or CACHE.DIR.") / "features"


def make_key(*parts: object) -> bytes:
    """Return the key of a row: a hash of what its feature depends on in addition to the model and the transform."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).digest()


class FeatureStore:
    """The features of one model with one transform.

    Args:
        folder: Folder of all stores.
        about: What a feature depends on in addition to the image; its hash names the folder of this store.
    """

    def __init__(self, folder: str | os.PathLike[str], about: Mapping[str, Any]) -> None:
        self.about = dict(about)
        digest = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode()).hexdigest()[:12]
        name = str(self.about.get("model", "model")).replace("/", "-").replace("@", "-")
        self.folder = expand_home(folder) / f"{name}-{digest}"
        self._broken = False

    def read(self, bucket: str, keys: Sequence[bytes]) -> dict[bytes, Tensor]:
        """Return the stored features of `keys` in a part of the store (`bucket`), such as `test`."""
        wanted = set(keys)
        found: dict[bytes, Tensor] = {}
        folder = self._part(bucket)
        sweep_once(folder)
        for path in sorted(folder.glob("*.safetensors")):
            if len(found) == len(wanted):
                break
            try:
                names, features = _read_file(path)
            except FileNotFoundError:  # another run deleted it
                continue
            except OSError as error:
                print(f"{path} cannot be read ({error}): its images are encoded again")
                continue
            # A TypeError or RuntimeError comes from an unexpected dtype.
            except (ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
                print(f"{path} is damaged ({error}): it is deleted, and its images are encoded again")
                with suppress(OSError):
                    path.unlink()
                continue
            found.update({name: feature for name, feature in zip(names, features, strict=True) if name in wanted})
        return found

    def write(self, bucket: str, keys: Sequence[bytes], features: Tensor) -> None:
        """Add rows. If the folder cannot be written, print a notice once and continue without storing."""
        if self._broken or not keys:
            return
        try:
            if not self.folder.joinpath(ABOUT).is_file():
                write_json(self.folder / ABOUT, self.about)
            content = _to_bytes(keys, features)
            path = self._part(bucket) / f"{uuid.uuid4().hex}.safetensors"
            write_atomically(path, lambda file: file.write(content))
        except OSError as error:
            self._broken = True
            reason = error.strerror or error
            print(f"Image features cannot be stored in {self.folder} ({reason}): this run continues without the store")

    def _part(self, bucket: str) -> Path:
        """Return the folder of a part, which is always inside the store, whatever a results.json calls its dataset."""
        names = (re.sub(r"[\\:]", "_", name) for name in bucket.split("/"))
        return self.folder.joinpath(*("_" if name in ("", ".", "..") else name for name in names))


def _checksum(keys: Tensor, features: Tensor) -> str:
    total = hashlib.blake2b(f"{features.dtype}{tuple(features.shape)}".encode(), digest_size=16)
    total.update(keys.numpy().tobytes())
    total.update(features.numpy().tobytes())
    return total.hexdigest()


def _to_bytes(keys: Sequence[bytes], features: Tensor) -> bytes:
    table = torch.frombuffer(bytearray(b"".join(keys)), dtype=torch.uint8).view(len(keys), KEY_BYTES)
    features = features.detach().cpu().contiguous()
    return save({"keys": table, "features": features}, {_CHECKSUM: _checksum(table, features)})


def _read_file(path: Path) -> tuple[list[bytes], Tensor]:
    if not stat.S_ISREG(path.stat().st_mode):  # opening a named pipe would wait for a writer
        raise OSError("it is not a file")
    with safe_open(path, framework="pt") as file:
        keys, features = file.get_tensor("keys"), file.get_tensor("features")
        if (file.metadata() or {}).get(_CHECKSUM) != _checksum(keys, features) or len(keys) != len(features):
            raise ValueError("its checksum is wrong")
        if not torch.isfinite(features).all():
            raise ValueError("it contains features that are not finite")
    raw = keys.numpy().tobytes()
    return [raw[start : start + KEY_BYTES] for start in range(0, len(raw), KEY_BYTES)], features
