"""The trainers, registered in Dassl's trainer registry by being imported."""

from cocoamix.compat import ensure_torchvision

ensure_torchvision()  # real Dassl imports it

# isort: split
from . import cocoamix, coop, maple, zsclip
from .config import extend_cfg

__all__ = ["cocoamix", "coop", "extend_cfg", "maple", "zsclip"]
