"""The trainers, registered in Dassl's trainer registry by being imported."""

from cocoamix.compat import ensure_torchvision

ensure_torchvision()  # real Dassl imports it

# isort: split
from . import cocoamix, coop, dept, maple, tune_en, zsclip
from .config import extend_cfg

__all__ = ["cocoamix", "coop", "dept", "extend_cfg", "maple", "tune_en", "zsclip"]
