"""Datasets, transforms and batches."""

from .data_manager import DataManager, DatasetWrapper

__all__ = ["DataManager", "DatasetWrapper"]
