"""If another code base registers the same names, theirs stay and ours get a prefix, whichever are registered first.

Here theirs are first; tests/test_plugin.py has a tree whose trainers are registered later.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from cocoamix.registry import register

CODE = """
import cocoamix
from cocoamix.compat import ensure_torchvision
ensure_torchvision()
from dassl.config import get_cfg_default
from dassl.engine import TRAINER_REGISTRY
from dassl.data.datasets import DATASET_REGISTRY, DatasetBase

@TRAINER_REGISTRY.register()
class CoOp:
    pass

class Shapes(DatasetBase):
    pass

DATASET_REGISTRY.register(Shapes)
import cocoamix.trainers, cocoamix.datasets
assert TRAINER_REGISTRY.get("CoOp") is CoOp
assert issubclass(TRAINER_REGISTRY.get("cocoamix.CoOp"), cocoamix.trainers.coop.CoOp)
assert DATASET_REGISTRY.get("Shapes") is Shapes
assert issubclass(DATASET_REGISTRY.get("cocoamix.Shapes"), cocoamix.datasets.shapes.Synthetic)
assert TRAINER_REGISTRY.get("ZeroshotCLIP") is cocoamix.trainers.zsclip.ZeroshotCLIP
assert issubclass(TRAINER_REGISTRY.get("cocoamix.ZeroshotCLIP"), cocoamix.trainers.zsclip.ZeroshotCLIP)
cfg = get_cfg_default()
assert len(DATASET_REGISTRY.get("cocoamix.Shapes")(cfg).classnames) == 120
try:
    TRAINER_REGISTRY.register(CoOp)
except KeyError:
    pass
else:
    raise AssertionError("a name that is theirs was given away")
"""


def test_names_already_registered() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Registry:
    """Like Dassl's: it refuses a name that is taken, and registering by a call returns nothing."""

    def __init__(self) -> None:
        self.found: dict[str, type] = {}

    def register(self, obj: type, force: bool = False) -> None:
        if obj.__name__ in self.found and not force:
            raise KeyError(obj.__name__)
        self.found[obj.__name__] = obj

    def registered_names(self) -> list[str]:
        return list(self.found)


def test_a_name_is_given_to_the_host_tree_only_once() -> None:
    registry = Registry()
    ours, theirs, others = (type("Method", (), {}) for _ in range(3))
    assert register(registry)(ours) is ours
    assert registry.found["Method"] is ours
    assert registry.register()(theirs) is theirs  # type: ignore[call-arg, func-returns-value]
    assert registry.found["Method"] is theirs
    assert issubclass(registry.found["cocoamix.Method"], ours)
    with pytest.raises(KeyError):
        registry.register(others)
    registry.register(others, force=True)
    assert registry.found["Method"] is others
