"""Makes Dassl, torchvision and CLIP packages importable with current versions of torch and setuptools.

Except for the faster import of torchvision, a workaround is applied only if the plain import fails.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import UserError
from .refusals import explain

_FALLBACK = Path(__file__).parent / "fallback"
OLDEST_TORCH = (2, 1)
_LATER = ("models", "ops")  # parts of torchvision that are imported on first use


def ensure_dassl() -> None:
    """Make `import dassl` work: it finds the installed Dassl, or else the small one in `fallback/`."""
    if "dassl" in sys.modules:
        return
    spec = importlib.util.find_spec("dassl")
    if spec is None or spec.origin is None:  # not installed, or just a folder with that name
        sys.path.append(str(_FALLBACK))


def uses_fallback() -> bool:
    """Return whether `import dassl` finds the small Dassl in `fallback/`, because none is installed."""
    spec = importlib.util.find_spec("dassl")
    return spec is not None and Path(spec.origin or "").is_relative_to(_FALLBACK)


def check_torch() -> None:
    """Raise a UserError if torch is missing or too old, because installing this package does not check torch."""
    try:
        version = str(importlib.import_module("torch").__version__)
    except ModuleNotFoundError as error:
        sentence = explain(error)
        if sentence is None:  # torch is installed, but a module that it needs is missing
            raise
        raise UserError(sentence) from error
    if tuple(int(number) for number in re.findall(r"\d+", version)[:2]) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise UserError(f"cocoamix needs torch {oldest} or newer, but {sys.executable} has {version}.")


def ensure_torchvision() -> None:
    """Import torchvision quickly, even if torch is a CPU build and torchvision was built for CUDA.

    Such a torchvision cannot load its compiled operators. Its import fails when it registers fake versions of two of
    them. Declaring their schemas first is enough for the transforms.
    """
    if "torchvision" in sys.modules:
        return
    try:
        _import_torchvision()
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        _declare_operators()
        _import_torchvision()


def _import_torchvision() -> None:
    """Import torchvision without the parts that import torch's compiler, which takes two seconds.

    These parts are imported on first use. A torchvision that needs them immediately is imported as a whole.
    """
    parts = {f"torchvision.{name}": types.ModuleType(name) for name in _LATER}
    sys.modules.update(parts)
    try:
        torchvision = importlib.import_module("torchvision")
    except (ImportError, RuntimeError) as error:
        for name in [n for n in sys.modules if n == "torchvision" or n.startswith("torchvision.")]:
            del sys.modules[name]
        if isinstance(error, RuntimeError):
            raise
        importlib.import_module("torchvision")
        return
    for name, part in parts.items():
        del sys.modules[name]
        if getattr(torchvision, part.__name__, None) is part:
            delattr(torchvision, part.__name__)
    torchvision.__getattr__ = _import_part  # type: ignore[method-assign]


def _import_part(name: str) -> types.ModuleType:
    """Import a part of torchvision that `_import_torchvision` left out."""
    if name not in _LATER:
        raise AttributeError(f"module 'torchvision' has no attribute {name!r}")
    return importlib.import_module(f"torchvision.{name}")


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _keep_alive.append(library)  # the schemas live as long as the library object


_keep_alive: list[Any] = []


@contextmanager
def _pkg_resources_stand_in() -> Iterator[None]:
    """Provide `pkg_resources.packaging` temporarily: `clip` imports it, and new versions of setuptools lack it."""
    if "pkg_resources" in sys.modules or importlib.util.find_spec("pkg_resources") is not None:
        present = importlib.import_module("pkg_resources")
        if hasattr(present, "packaging"):
            yield
            return
    else:
        present = None
    stand_in = types.ModuleType("pkg_resources")
    stand_in.packaging = importlib.import_module("packaging")  # type: ignore[attr-defined]
    importlib.import_module("packaging.version")
    sys.modules["pkg_resources"] = stand_in
    try:
        yield
    finally:
        if present is None:
            del sys.modules["pkg_resources"]
        else:
            sys.modules["pkg_resources"] = present


def import_openai_clip() -> types.ModuleType:
    """Import OpenAI's `clip` package: PyPI's `clip-anytorch`, or the folder `clip` of a CoOp tree.

    Raises:
        ImportError: It is not installed, or `clip` is another package.
    """
    ensure_torchvision()
    if "clip.model" not in sys.modules:
        with _pkg_resources_stand_in():
            importlib.import_module("clip.clip")
    package = importlib.import_module("clip")
    if not hasattr(importlib.import_module("clip.model"), "build_model"):
        raise ImportError(f"the package `clip` at {package.__file__} is not OpenAI's CLIP")
    return package


def import_open_clip() -> types.ModuleType:
    """Import `open_clip`; raise ImportError if it is not installed."""
    ensure_torchvision()
    return importlib.import_module("open_clip")


def import_grad_cam() -> types.ModuleType:
    """Import `pytorch_grad_cam` (PyPI's `grad-cam`); raise ImportError if it cannot be imported."""
    ensure_torchvision()
    return importlib.import_module("pytorch_grad_cam")
