"""Figures are rendered coarsely, except where their files are tested."""

from __future__ import annotations

import pytest

from cocoamix.experiments.figures import style


@pytest.fixture(autouse=True)
def _coarse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.path.name != "test_style.py":
        monkeypatch.setitem(style.RC, "savefig.dpi", 30)
