"""Beside a code base that has registered the same names, theirs stay and ours have a prefix."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import cocoamix
from dassl.engine import TRAINER_REGISTRY, TrainerX
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase

class CoOp(TrainerX):
    pass

class Shapes(DatasetBase):
    pass

TRAINER_REGISTRY.register(CoOp)
DATASET_REGISTRY.register(Shapes)
import cocoamix.trainers, cocoamix.datasets
assert TRAINER_REGISTRY.get("CoOp") is CoOp
assert issubclass(TRAINER_REGISTRY.get("cocoamix.CoOp"), cocoamix.trainers.coop.CoOp)
assert DATASET_REGISTRY.get("Shapes") is Shapes
assert issubclass(DATASET_REGISTRY.get("cocoamix.Shapes"), cocoamix.datasets.shapes.Shapes)
assert TRAINER_REGISTRY.get("ZeroshotCLIP") is cocoamix.trainers.zsclip.ZeroshotCLIP
from cocoamix.trainers import extend_cfg
from dassl.config import get_cfg_default
cfg = get_cfg_default()
extend_cfg(cfg)
assert len(DATASET_REGISTRY.get("cocoamix.Shapes")(cfg).classnames) == 120
"""


def test_names_that_are_taken() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
