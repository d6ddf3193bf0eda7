"""The datasets, registered in Dassl's dataset registry by being imported."""

from cocoamix.compat import ensure_torchvision

ensure_torchvision()  # real Dassl imports it

# isort: split
from . import csv_file, eurosat, folder, shapes

__all__ = ["csv_file", "eurosat", "folder", "shapes"]
