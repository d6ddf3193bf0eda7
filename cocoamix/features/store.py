"""The store of frozen image features: encoded once, for every method, subset and start that sees the same picture.

A feature is found by what it depends on. The weights, the package and precision that run them, and the transform name a
folder; picture (path, size, time of change) and augmentation name a row. Rows are in files that are written whole under
a name of their own and never changed: several runs may write at once, and a run that is killed leaves nothing that
another would read.
Every file carries a checksum; a damaged one is deleted and its pictures are encoded again.
"""

from __future__ import annotations

import hashlib
import json
import os
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
from cocoamix.io.paths import expand_home

ABOUT = "about.json"
KEY_BYTES = 16
_CHECKSUM = "checksum"


def default_folder() -> Path:
    """Return where features are kept unless CACHE.DIR says otherwise."""
    given = os.environ.get("COCOAMIX_CACHE")
    if given:
        return expand_home(given) / "features"
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expand_home(caches, "Set HOME, COCOAMIX_CACHE or CACHE.DIR.") / "cocoamix" / "features"


def make_key(*parts: object) -> bytes:
    """Return the key of a row: a hash of all that its feature depends on beside the model and the transform."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=KEY_BYTES).digest()


class FeatureStore:
    """The features of one model under one transform.

    folder: of all stores.
    about: what a feature depends on beside the picture; it names the store's own folder.
    """

    def __init__(self, folder: str | os.PathLike[str], about: Mapping[str, Any]) -> None:
        self.about = dict(about)
        digest = hashlib.sha256(json.dumps(self.about, sort_keys=True).encode()).hexdigest()[:12]
        name = str(self.about.get("model", "model")).replace("/", "-").replace("@", "-")
        self.folder = expand_home(folder) / f"{name}-{digest}"
        self._broken = False

    def read(self, bucket: str, keys: Sequence[bytes]) -> dict[bytes, Tensor]:
        """Return the features of `keys` that are stored. bucket: part of the store that they are in, such as `test`."""
        wanted, found = set(keys), {}
        sweep_once(self.folder / bucket)
        for path in sorted(self.folder.joinpath(bucket).glob("*.safetensors")):
            try:
                names, features = _read_file(path)
            except FileNotFoundError:  # cleared in this moment
                continue
            except OSError as error:
                print(f"{path} cannot be read ({error}): its pictures are encoded again")
                continue
            except (ValueError, KeyError, SafetensorError) as error:
                print(f"{path} is damaged ({error}): it is deleted, and its pictures are encoded again")
                with suppress(OSError):
                    path.unlink()
                continue
            found.update({name: feature for name, feature in zip(names, features, strict=True) if name in wanted})
        return found

    def write(self, bucket: str, keys: Sequence[bytes], features: Tensor) -> None:
        """Add rows. Where the disk is full or may not be written, say so once and go on without."""
        if self._broken or not keys:
            return
        try:
            if not self.folder.joinpath(ABOUT).is_file():
                write_json(self.folder / ABOUT, self.about)
            content = _to_bytes(keys, features)
            path = self.folder / bucket / f"{uuid.uuid4().hex}.safetensors"
            write_atomically(path, lambda file: file.write(content))
        except OSError as error:
            self._broken = True
            reason = error.strerror or error
            print(f"Image features cannot be stored in {self.folder} ({reason}): this run goes on without")


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
    with safe_open(path, framework="pt") as file:
        keys, features = file.get_tensor("keys"), file.get_tensor("features")
        if (file.metadata() or {}).get(_CHECKSUM) != _checksum(keys, features) or len(keys) != len(features):
            raise ValueError("its checksum is wrong")
    raw = keys.numpy().tobytes()
    return [raw[start : start + KEY_BYTES] for start in range(0, len(raw), KEY_BYTES)], features
