"""Dataclasses to plain values and back: what is omitted, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from cocoamix.io.plain import MismatchError, read_fields, to_plain


@dataclass(frozen=True)
class Part:
    name: str
    size: float | None  # always written
    note: str | None = None  # omitted without one


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    count: int = 0
    sure: bool | None = None
    means: Mapping[str, float] = field(default_factory=dict)
    free: Mapping[str, Any] = field(default_factory=dict)


WHOLE = Whole((Part("a", None), Part("b", 1.5, "n")), 2, True, {"x": 1.0}, {"y": [None, {"z": "t"}]})
PLAIN = {
    "parts": [{"name": "a", "size": None}, {"name": "b", "size": 1.5, "note": "n"}],
    "count": 2,
    "sure": True,
    "means": {"x": 1.0},
    "free": {"y": [None, {"z": "t"}]},
}


def test_plain_values_round_trip() -> None:
    assert to_plain(WHOLE) == PLAIN
    assert Whole(**read_fields(Whole, PLAIN)) == WHOLE


def test_optional_fields_may_be_omitted() -> None:
    assert read_fields(Whole, {"parts": [], "count": None, "sure": None, "unknown": 1}) == {"parts": ()}
    assert to_plain(Whole(())) == {"parts": [], "count": 0, "means": {}, "free": {}}


def test_integers_are_numbers() -> None:
    (found,) = read_fields(Whole, {"parts": [], "means": {"x": 3}})["means"].values()
    assert type(found) is float


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parts": None}, "its parts is not a list"),
        ({"parts": {"a": 1}}, "its parts is not a list"),
        ({"parts": [1]}, "its parts[0] is not an object"),
        ({"parts": [{"name": "a", "size": 1}, {"name": "b"}]}, "its parts[1] has no 'size'"),
        ({"parts": [{"name": 1, "size": 1}]}, "its parts[0].name is not a string"),
        ({"parts": [{"name": None, "size": 1}]}, "its parts[0].name is not a string"),
        ({"count": 1.0}, "its count is not an integer"),
        ({"count": True}, "its count is not an integer"),
        ({"sure": 1}, "its sure is not true or false"),
        ({"means": {"x": True}}, "its means.x is not a number"),
        ({"means": {"x": 10**400}}, "its means.x is not a number"),
        ({"means": [1]}, "its means is not an object"),
    ],
)
def test_values_of_the_wrong_type_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(MismatchError) as caught:
        read_fields(Whole, {**PLAIN, **changes})
    assert str(caught.value) == words


def test_values_that_are_not_objects_are_refused() -> None:
    with pytest.raises(MismatchError, match=r"^it is not an object$"):
        read_fields(Whole, [1])
    with pytest.raises(MismatchError, match=r"^it has no 'parts'$"):
        read_fields(Whole, {})
