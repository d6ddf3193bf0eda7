"""Most figures are rendered only in part."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _coarse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only test_command.py looks at all files of a figure."""
    monkeypatch.setattr("cocoamix.drawing.files._DPI", 30)
    if request.path.name != "test_command.py":
        request.getfixturevalue("coarse_figures")
