"""Unreadable images are reported once and skipped, or stop the run."""

from __future__ import annotations

import pytest

from cocoamix.errors import UserError
from cocoamix.features.unreadable import Unreadable


def test_each_image_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    found = Unreadable("skip")
    found.note({"a.png": "cut short"})
    found.note({"a.png": "cut short", "b.png": "empty"})
    assert dict(found) == {"a.png": "cut short", "b.png": "empty"}
    assert capsys.readouterr().out.count("a.png") == 1


def test_the_first_unreadable_image_stops_a_run() -> None:
    with pytest.raises(UserError, match=r"1 unreadable image: a.png \(cut short\).*BAD_IMAGES skip"):
        Unreadable("stop").note({"a.png": "cut short"})


def test_known_unreadable_images_do_not_stop_a_resumed_run() -> None:
    """A resumed run knows which images it has skipped."""
    found = Unreadable("stop")
    found.update({"a.png": "cut short"})
    found.note({"a.png": "cut short"})
