"""The datasets, registered in Dassl's dataset registry by being imported."""

from cocoamix.compat import ensure_torchvision

ensure_torchvision()  # real Dassl imports it

# isort: split
from . import eurosat, shapes

__all__ = ["eurosat", "shapes"]
