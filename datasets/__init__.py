"""The datasets, registered in Dassl's dataset registry by being imported."""

from . import eurosat

__all__ = ["eurosat"]
