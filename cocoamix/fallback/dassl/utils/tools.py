"""Helpers for files, images, seeds and names."""

from __future__ import annotations

import json
import os
import platform
import random
import warnings
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np
import torch
from PIL import Image

from cocoamix.errors import UserError, nearest
from cocoamix.features.reading import UnreadableError
from cocoamix.features.reading import read_image as read
from cocoamix.io.files import write_atomically

from .errors import UnknownNameError


def mkdir_if_missing(dirname: str) -> None:
    """Create the folder and its parents; '' is the current folder."""
    if dirname:
        os.makedirs(dirname, exist_ok=True)


def check_isfile(fpath: str) -> bool:
    """Return whether `fpath` is a file; warn if it is not."""
    found = os.path.isfile(fpath)
    if not found:
        warnings.warn(f"There is no file {fpath}", stacklevel=2)
    return found


def read_json(fpath: str) -> Any:
    """Return the content of a JSON file."""
    with open(fpath, encoding="utf-8") as file:
        return json.load(file)


def write_json(obj: Any, fpath: str) -> None:
    """Write a JSON file and create its folder. Atomic, because several runs may write the same split file."""
    mkdir_if_missing(os.path.dirname(fpath))
    text = json.dumps(obj, indent=4)
    write_atomically(fpath, lambda file: file.write(text.encode("utf-8")))


def set_random_seed(seed: int) -> None:
    """Seed Python, NumPy and torch (all devices)."""
    for generator in (random.seed, np.random.seed, torch.manual_seed, torch.cuda.manual_seed_all):
        generator(seed)


def read_image(path: str, upright: bool = False) -> Image.Image:
    """Read an image as RGB, as our own trainers do. `upright` applies its EXIF orientation."""
    try:
        return read(path, upright)
    except UnreadableError as error:
        raise UserError(f"Cannot read the image {path} ({error}). Restore that file from its dataset.") from error


def collect_env_info() -> str:
    """Describe the machine and the main packages, one line each."""
    lines = [f"Python: {platform.python_version()}", f"Platform: {platform.platform()}", f"CPUs: {os.cpu_count()}"]
    for package in ("torch", "torchvision", "numpy", "pillow"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            version = "not installed"
        lines.append(f"{package}: {version}")
    try:
        lines.append(f"CUDA: {torch.version.cuda if torch.cuda.is_available() else 'not available'}")
        lines += [f"GPU {i}: {torch.cuda.get_device_name(i)}" for i in range(torch.cuda.device_count())]
    except (RuntimeError, AssertionError) as error:  # report a broken driver, but do not stop
        lines.append(f"CUDA: {error}")
    return "\n".join(lines)


def listdir_nohidden(path: str, sort: bool = False) -> list[str]:
    """List a folder without the names that start with a dot."""
    names = [name for name in os.listdir(path) if not name.startswith(".")]
    return sorted(names) if sort else names


def check_availability(requested: str, available: Sequence[str], key: str = "") -> None:
    """Raise UnknownNameError if a name is not in `available`. `key` is the config key that it comes from."""
    if requested in available:
        return
    what = f"{key} is {requested!r}, which" if key else f"{requested!r}"
    listed = ", ".join(available) or "nothing"
    hint = nearest(str(requested), available)
    raise UnknownNameError(f"{what} is not available.{hint} Available: {listed}.")
