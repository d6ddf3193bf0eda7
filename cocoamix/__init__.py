"""CoCoA-Mix: few-shot prompt tuning of CLIP.

The library part needs torch and CLIP only. `cocoamix.trainers` and `cocoamix.datasets` add the
Dassl side; in a source tree they live in the top-level folders `trainers/` and `datasets/`.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import compat

__version__ = "0.1.0"

# In a clone, `python train.py` must work without an install step: let `cocoamix.trainers` and
# `cocoamix.datasets` resolve to the folders beside this one. Installed, they are real sub-packages.
_root = Path(__file__).resolve().parent.parent
if not (Path(__file__).parent / "trainers").is_dir() and (_root / "trainers" / "base.py").is_file():
    __path__.append(str(_root))

compat.ensure_dassl()

if TYPE_CHECKING:
    from .clip.model import load_clip
    from .predict.classifier import Classifier, load
    from .predict.estimator import PromptClassifier

__all__ = ["Classifier", "PromptClassifier", "__version__", "load", "load_clip"]
_PUBLIC = {
    "Classifier": "predict.classifier",
    "PromptClassifier": "predict.estimator",
    "load": "predict.classifier",
    "load_clip": "clip.model",
}


def __getattr__(name: str) -> Any:
    """Import what is public once it is asked for: torch takes seconds."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
