"""Unreadable images: named once and left out, or a stop."""

from __future__ import annotations

import pytest

from cocoamix.errors import UserError
from cocoamix.features.unreadable import Unreadable


def test_each_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = Unreadable("skip")
    found.note({"a.png": "cut short"})
    found.note({"a.png": "cut short", "b.png": "empty"})
    assert dict(found) == {"a.png": "cut short", "b.png": "empty"}
    assert capsys.readouterr().out.count("a.png") == 1


def test_the_first_stops_a_run() -> None:
    with pytest.raises(UserError, match=r"1 unreadable image\(s\): a.png \(cut short\).*BAD_IMAGES skip"):
        Unreadable("stop").note({"a.png": "cut short"})


def test_what_is_known_does_not_stop_again() -> None:
    """A resumed run knows what it has left out."""
    found = Unreadable("stop")
    found.update({"a.png": "cut short"})
    found.note({"a.png": "cut short"})
