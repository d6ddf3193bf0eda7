"""Made-up class names: as many as asked, none twice, none of the real ones, the same for the same seed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cocoamix.errors import UserError
from cocoamix.outclasses import make_outclasses


@given(kind=st.sampled_from(["word", "string", "both"]), count=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_names(kind: str, count: int, seed: int) -> None:
    avoid = make_outclasses(kind, count, [], seed)[: count // 2]
    state = random.getstate()
    names = make_outclasses(kind, count, avoid, seed)
    assert random.getstate() == state  # a generator of its own
    assert len(names) == len(set(names)) == count
    assert not {name.lower() for name in names} & {name.lower() for name in avoid}
    assert names == make_outclasses(kind, count, avoid, seed)


def test_kinds() -> None:
    assert make_outclasses("none", 10, [], 1) == []
    words, letters, both = (make_outclasses(kind, 40, [], 1) for kind in ("word", "string", "both"))
    assert not set(words) & set(letters)
    assert len(set(both) & set(make_outclasses("word", 20, [], 1))) == 20
    assert all(name.isalpha() and name.islower() for name in letters)
    with pytest.raises(UserError, match="wrd"):
        make_outclasses("wrd", 3, [], 1)
    with pytest.raises(UserError, match="nouns"):
        make_outclasses("word", 10**5, [], 1)
