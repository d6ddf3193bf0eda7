"""Test figures have a low resolution, except for those that a module draws once."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """High-resolution images take most of the time, and nobody looks at these."""
    monkeypatch.setattr("cocoamix.drawing.files._DPI", 30)
