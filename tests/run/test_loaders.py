"""The loaders of a run."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from cocoamix import train
from cocoamix.run.loaders import DataManager, loader_over


def test_more_workers_than_cores_are_not_warned_about(common_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CoOp's configurations ask for 8, and another tree's train.py filters no warnings."""
    arguments = [
        "--root",
        str(common_data),
        "--trainer",
        "CoOp",
        "--dataset-config-file",
        "configs/datasets/eurosat.yaml",
    ]
    cfg = train.setup_cfg(train.parse_arguments([*arguments, "DATASET.NUM_SHOTS", "2", "DATALOADER.NUM_WORKERS", "8"]))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        manager = DataManager(cfg)
        loader_over(cfg, manager.test_loader, manager.dataset.test, train=False, seed=1)
        assert [str(one.message) for one in found if "DataLoader" in str(one.message)] == []
