"""Generated class names: as many as requested, no duplicates, no real ones, the same for the same seed."""

from __future__ import annotations

import random

import pytest
import wonderwords
from hypothesis import given, settings
from hypothesis import strategies as st

from cocoamix.coa import out_classes
from cocoamix.coa.out_classes import make_outclasses
from cocoamix.errors import UserError


@given(kind=st.sampled_from(["word", "string", "both"]), count=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_names_are_unique_reproducible_and_not_excluded(kind: str, count: int, seed: int) -> None:
    avoid = make_outclasses(kind, count, [], seed)[: count // 2]
    state = random.getstate()
    names = make_outclasses(kind, count, avoid, seed)
    assert random.getstate() == state  # a separate generator is used
    assert len(names) == len(set(names)) == count
    assert not {name.lower() for name in names} & {name.lower() for name in avoid}
    assert names == make_outclasses(kind, count, avoid, seed)


def test_kinds_of_names_differ() -> None:
    assert make_outclasses("none", 10, [], 1) == []
    words, letters, both = (make_outclasses(kind, 40, [], 1) for kind in ("word", "string", "both"))
    assert not set(words) & set(letters)
    assert len(set(both) & set(make_outclasses("word", 20, [], 1))) == 20
    assert all(name.isalpha() and name.islower() for name in letters)
    with pytest.raises(UserError, match=r"^OUT_CLASSES is 'wrd'"):
        make_outclasses("wrd", 3, [], 1)
    with pytest.raises(UserError, match="nouns"):
        make_outclasses("word", 10**5, [], 1)


def test_the_order_of_the_package_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another release of wonderwords may list its nouns in another order, or list one twice."""
    wanted = make_outclasses("word", 30, [], 1)
    nouns = wonderwords.RandomWord().filter(include_categories=["noun"])
    monkeypatch.setattr(wonderwords.RandomWord, "filter", lambda self, **kinds: [*nouns[::-1], *nouns])
    out_classes._nouns.cache_clear()
    try:
        assert make_outclasses("word", 30, [], 1) == wanted
    finally:
        out_classes._nouns.cache_clear()


@pytest.mark.parametrize("kind", ["word", "string", "both"])
def test_a_class_is_avoided_in_every_spelling(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Datasets write "Contact_Lens" and CLIP reads "contact lens": case and underscores do not make another class."""
    monkeypatch.setattr(out_classes, "_nouns", lambda: ("TV", "bread", "contact lens", "dog", "ice cream", "zebra"))
    names = make_outclasses(kind, 4, [], 1)
    avoid = [name.swapcase().replace(" ", "_") for name in names[:2]]
    others = make_outclasses(kind, 4, avoid, 1)
    assert len(others) == 4
    assert not {name.lower() for name in names[:2]} & {name.lower() for name in others}


def test_random_strings_have_the_documented_lengths() -> None:
    lengths = {len(name) for name in make_outclasses("string", 400, [], 3)}
    assert lengths == set(range(4, 11))
    assert (
        len(set(make_outclasses("both", 7, [], 1)) & set(make_outclasses("word", 4, [], 1))) == 4
    )  # four of seven are words


@pytest.mark.parametrize("kind", ["string", "both"])
def test_no_name_is_drawn_twice(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """As many names as there are letters, each a single letter."""
    monkeypatch.setattr(out_classes, "_nouns", lambda: tuple("abcdefghijklm"))
    monkeypatch.setattr(out_classes, "_LETTERS", (1, 1))
    assert sorted(make_outclasses(kind, 26, [], 1)) == list("abcdefghijklmnopqrstuvwxyz")


def test_all_available_nouns_are_used_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out_classes, "_nouns", lambda: ("TV", "bread", "dog", "zebra"))
    assert set(make_outclasses("word", 2, ["tv", "Dog"], 1)) == {"bread", "zebra"}
    with pytest.raises(UserError, match="has 2 unused nouns, but 3 are needed"):
        make_outclasses("word", 3, ["tv", "Dog"], 1)


def test_missing_package_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> tuple[str, ...]:
        raise ImportError("wonderwords")

    monkeypatch.setattr(out_classes, "_nouns", missing)
    with pytest.raises(UserError, match="pip install wonderwords"):
        make_outclasses("word", 2, [], 1)
    assert len(make_outclasses("string", 2, [], 1)) == 2, "letters need no package"
