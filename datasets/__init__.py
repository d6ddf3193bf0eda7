"""The datasets, registered in Dassl's dataset registry by being imported."""

from . import eurosat, shapes

__all__ = ["eurosat", "shapes"]
