"""Which engine is under test, and what real Dassl returned in the same situations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cocoamix  # noqa: F401  (makes `dassl` importable)
from cocoamix.compat import ensure_torchvision
from cocoamix.errors import UserError

ensure_torchvision()

import dassl  # noqa: E402

OURS = "fallback" in str(dassl.__file__)

# What Dassl lacks or gets wrong, and ours must get right.
only_ours = pytest.mark.skipif(not OURS, reason="real Dassl does not do this")

# Made by running real Dassl 0.6.3.
REFERENCE: dict[str, Any] = json.loads((Path(__file__).parent / "reference.json").read_text())

# Bad input: a built-in exception in Dassl, a UserError here.
REFUSALS = (UserError, ValueError, KeyError, AssertionError)
