"""CoCoA-Mix: few-shot prompt tuning of CLIP.

The library needs only torch and CLIP. `cocoamix.trainers` and `cocoamix.datasets` are the part that builds on Dassl; in
a source tree they are the top-level folders `trainers/` and `datasets/`.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import compat

__version__ = "0.1.0"

# `python train.py` must work in a clone without installation: make `cocoamix.trainers` and `cocoamix.datasets` resolve
# to the folders next to this one. In an installed package they are sub-packages.
_root = Path(__file__).resolve().parent.parent
if not (Path(__file__).parent / "trainers").is_dir() and (_root / "trainers" / "coop.py").is_file():
    __path__.append(str(_root))

compat.ensure_dassl()

if TYPE_CHECKING:
    from .clip.model import load_clip
    from .estimator import PromptClassifier
    from .loading import build_model
    from .trained import TrainedModel, load

__all__ = ["PromptClassifier", "TrainedModel", "__version__", "build_model", "load", "load_clip"]
_PUBLIC = {
    "PromptClassifier": "estimator",
    "TrainedModel": "trained",
    "build_model": "loading",
    "load": "trained",
    "load_clip": "clip.model",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, because importing torch takes seconds."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
