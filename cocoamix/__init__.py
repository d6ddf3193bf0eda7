"""CoCoA-Mix: few-shot prompt tuning of CLIP.

The library part needs torch and CLIP only. `cocoamix.trainers` and `cocoamix.datasets` add the
Dassl side; in a source tree they live in the top-level folders `trainers/` and `datasets/`.
"""

from pathlib import Path

from . import compat

__version__ = "0.1.0"

# In a clone, `python train.py` must work without an install step: let `cocoamix.trainers` and
# `cocoamix.datasets` resolve to the folders beside this one. Installed, they are real sub-packages.
_root = Path(__file__).resolve().parent.parent
if not (Path(__file__).parent / "trainers").is_dir() and (_root / "trainers" / "base.py").is_file():
    __path__.append(str(_root))

compat.ensure_dassl()
