"""Workarounds for imports, in separate processes."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT

LATER = """
import sys
import cocoamix.trainers
assert "torch._dynamo" not in sys.modules
import torchvision
from torchvision.transforms import v2
assert callable(torchvision.ops.nms)
assert "torchvision.models.resnet" not in sys.modules
assert callable(torchvision.models.resnet18)
try:
    torchvision.nothing
except AttributeError as error:
    assert str(error) == "module 'torchvision' has no attribute 'nothing'"
else:
    raise AssertionError
"""
# A torchvision that uses one of these parts while it is imported, which fails once.
WHOLE = """
import sys
from cocoamix import compat

class Demanding:
    failed = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "torchvision.utils" and not cls.failed:
            cls.failed = True
            raise ImportError("cannot import name 'nms' from 'torchvision.ops'")

compat._declare_operators()
sys.meta_path.insert(0, Demanding)
compat.ensure_torchvision()
assert Demanding.failed
assert "torchvision.models.resnet" in sys.modules
"""


def test_parts_of_torchvision_are_imported_when_they_are_used() -> None:
    done = subprocess.run([sys.executable, "-c", LATER], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]


def test_torchvision_is_imported_whole_where_it_needs_its_parts() -> None:
    done = subprocess.run([sys.executable, "-c", WHOLE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1500:]
