"""Settings as text: what is parsed as a value, and what stays text."""

from __future__ import annotations

from typing import Any

import pytest

from cocoamix.config.settings import flatten, literal
from cocoamix.experiments.logs import parse_value

NOT_VALUES = ["{{}}", "{[]: 1}", "(" * 5000, "-" * 100_000 + "1", "__import__('os').getcwd()", "a photo of a {}."]


@pytest.mark.parametrize(("text", "value"), [("1e-5", 1e-5), ("(32, 32)", (32, 32)), ("True", True), ("ViT", "ViT")])
def test_text_is_parsed_as_a_value(text: str, value: Any) -> None:
    assert literal(text) == value


@pytest.mark.parametrize("text", NOT_VALUES)
def test_text_that_is_not_a_value_stays_text(text: str) -> None:
    assert literal(text) == text
    assert parse_value(text) == text  # in another project's log


def test_printed_sets_can_be_compared() -> None:
    assert {parse_value("{2, 1}")} == {parse_value("{1, 2}")}


def test_nested_settings_become_dotted_keys() -> None:
    assert flatten({"A": {"B": 1, "C": {"D": [2]}}, "E": 3}) == {"A.B": 1, "A.C.D": [2], "E": 3}
