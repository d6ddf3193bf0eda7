"""The trainers, registered in Dassl's trainer registry by being imported."""

from cocoamix.compat import ensure_torchvision

ensure_torchvision()  # real Dassl imports it

# isort: split
from . import cocoamix, cocoop, coop, dept, kgcoop, maple, prograd, tune_en, zsclip
from .config import extend_cfg

__all__ = [
    "cocoamix",
    "cocoop",
    "coop",
    "dept",
    "extend_cfg",
    "kgcoop",
    "maple",
    "prograd",
    "tune_en",
    "zsclip",
]
