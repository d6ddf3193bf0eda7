"""Finding the classes of an evaluation among those of the training."""

from __future__ import annotations

from types import SimpleNamespace

from cocoamix.clip.class_names import find_rows, synsets_of


def test_by_name() -> None:
    known = ["Red star", "dog", "tree"]
    assert find_rows(["tree", "red_star"], known) == ([2, 0], [])
    assert find_rows(["tree", "cat"], known) == ([2, -1], [])
    assert find_rows(known, known) == ([0, 1, 2], [])
    assert find_rows([" Tree "], known) == ([2], [])


def test_a_repeated_name() -> None:
    """In order where both sides have all of them; unclear where not: never simply the last."""
    known = ["dog", "missile", "tree", "missile"]
    assert find_rows(["missile", "missile", "dog"], known) == ([1, 3, 0], [])
    assert find_rows(known, known) == ([0, 1, 2, 3], [])
    assert find_rows(["missile", "tree"], known) == ([-1, 2], ["missile"])
    assert find_rows(["dog", "dog"], known) == ([-1, -1], ["dog"])


def test_identifiers_come_first() -> None:
    known, synsets = ["missile", "dog", "missile"], ["n04008634", "n04009552", "n03773504"]
    assert find_rows(["missile"], known, ["n03773504"], synsets) == ([2], [])
    assert find_rows(["missile"], known, ["n04008634"], synsets) == ([0], [])
    assert find_rows(["missile"], known, ["n01440764"], synsets) == ([-1], [])
    assert find_rows(["dog"], known, [], synsets) == ([1], []), "one side has none"
    assert find_rows(["dog"], known, ["n04009552"], []) == ([1], []), "the other side has none"


def test_identifiers_are_the_names_of_folders() -> None:
    def items(*folders: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(label=label, impath=f"/data/{one}/1.jpg") for label, one in enumerate(folders)]

    assert synsets_of(items("n01440764", "n01443537")[::-1], 2) == ["n01440764", "n01443537"]
    assert synsets_of(items("n01440764", "tench"), 2) == []
    assert synsets_of(items("0", "1"), 2) == []
    assert synsets_of(items("n01440764"), 2) == []
    several = [*items("n01440764", "n01443537"), *items("n09999999")]
    assert synsets_of(several, 2) == ["n01440764", "n01443537"], "the first image of a class tells"
