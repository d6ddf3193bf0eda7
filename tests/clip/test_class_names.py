"""Spellings of class names, and matching the classes of an evaluation with those of the training."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from cocoamix.clip.class_names import class_words, distinct, find_rows, plain_class, synsets_of, tidy_class
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("name", "words", "tidy", "plain"),
    [
        ("sea lion", "sea lion", "sea lion", "sea lion"),
        ("Apply_Eye_Makeup", "Apply Eye Makeup", "Apply Eye Makeup", "apply eye makeup"),
        (" _T-shirt__red ", "  T-shirt  red ", "T-shirt red", "t-shirt  red"),
        ("McLaren MP4-12C", "McLaren MP4-12C", "McLaren MP4-12C", "mclaren mp4-12c"),
        ("cafe\u0301\tbar", "cafe\u0301\tbar", "caf\u00e9 bar", "cafe\u0301\tbar"),
        ("", "", "", ""),
    ],
)
def test_spellings_of_a_class_name(name: str, words: str, tidy: str, plain: str) -> None:
    assert (class_words(name), tidy_class(name), plain_class(name)) == (words, tidy, plain)


def test_names_are_normalised_in_one_place() -> None:
    """With a second place, two spellings of one class would eventually become two classes."""
    own = {"cocoamix/clip/class_names.py"}
    # The words of CTX_INIT belong to a context, not to a class.
    pattern = re.compile(r"""(?<!ctx_init)\.replace\("_", " "\)""")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("cocoamix", "datasets", "trainers", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        if pattern.search(path.read_text(encoding="utf-8"))
    }
    assert found == own


def test_rows_are_found_by_name() -> None:
    known = ["Red star", "dog", "tree"]
    assert find_rows(["tree", "red_star"], known) == ([2, 0], [])
    assert find_rows(["tree", "cat"], known) == ([2, -1], [])
    assert find_rows(known, known) == ([0, 1, 2], [])
    assert find_rows([" Tree "], known) == ([2], [])


def test_repeated_names_match_in_order_or_are_ambiguous() -> None:
    """Matched in order if both sides have all of them, otherwise ambiguous: never simply the last."""
    known = ["dog", "missile", "tree", "missile"]
    assert find_rows(["missile", "missile", "dog"], known) == ([1, 3, 0], [])
    assert find_rows(known, known) == ([0, 1, 2, 3], [])
    assert find_rows(["missile", "tree"], known) == ([-1, 2], ["missile"])
    assert find_rows(["dog", "dog"], known) == ([-1, -1], ["dog"])


def test_identifiers_take_precedence_over_names() -> None:
    known, synsets = ["missile", "dog", "missile"], ["n04008634", "n04009552", "n03773504"]
    assert find_rows(["missile"], known, ["n03773504"], synsets) == ([2], [])
    assert find_rows(["missile"], known, ["n04008634"], synsets) == ([0], [])
    assert find_rows(["missile"], known, ["n01440764"], synsets) == ([-1], [])
    assert find_rows(["dog"], known, [], synsets) == ([1], []), "one side has none"
    assert find_rows(["dog"], known, ["n04009552"], []) == ([1], []), "the other side has none"


def test_identifiers_are_folder_names() -> None:
    def items(*folders: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(label=label, impath=f"/data/{one}/1.jpg") for label, one in enumerate(folders)]

    assert synsets_of(items("n01440764", "n01443537")[::-1], 2) == ["n01440764", "n01443537"]
    assert synsets_of(items("n01440764", "tench"), 2) == []
    assert synsets_of(items("0", "1"), 2) == []
    assert synsets_of(items("n01440764"), 2) == []
    several = [*items("n01440764", "n01443537"), *items("n09999999")]
    assert synsets_of(several, 2) == ["n01440764", "n01443537"], "the first image of a class decides"


def test_classes_with_equal_names_are_numbered_in_outputs() -> None:
    names = ["missile", "cat", "Missile", "dog", "mis_sile", "mis sile", "missile"]
    wanted = ["missile (1)", "cat", "Missile (2)", "dog", "mis_sile (1)", "mis sile (2)", "missile (3)"]
    assert distinct(names) == wanted
    assert distinct(["a", "b"]) == ["a", "b"]
    assert distinct([]) == []
