"""The base classes of datasets. The datasets themselves are registered elsewhere."""

from .base_dataset import DatasetBase, Datum
from .build import DATASET_REGISTRY, build_dataset

__all__ = ["DATASET_REGISTRY", "DatasetBase", "Datum", "build_dataset"]
