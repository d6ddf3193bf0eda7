"""Our tokeniser gives the same tokens as OpenAI's package and open_clip."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cocoamix import compat
from cocoamix.clip.tokens import EOT, SOS, tokenize
from cocoamix.errors import UserError

compat.import_openai_clip()
open_clip = compat.import_open_clip()
import clip  # noqa: E402


@given(st.lists(st.text(max_size=15), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_tokens_match_openai(texts: list[str]) -> None:
    try:
        wanted = clip.tokenize(texts).long()
    except RuntimeError:  # too long: emoji and rare scripts take many tokens
        with pytest.raises(UserError):
            tokenize(texts)
        return
    assert torch.equal(tokenize(texts), wanted)


def test_tokens_match_open_clip() -> None:
    texts = ["a photo of a 2012 Bentley Continental Flying Spur Sedan.", "Boeing 737-800", "crème brûlée", "it's"]
    assert torch.equal(tokenize(texts), open_clip.tokenize(texts).long())


def test_end_token_is_the_largest() -> None:
    row = tokenize(["cat"])[0]
    assert row[0] == SOS
    assert row[int(row.argmax())] == EOT
    assert int(row.argmax()) == 2


def test_error_for_too_long_text_quotes_it() -> None:
    with pytest.raises(UserError, match=r"'cat cat.*102 tokens.*reads 77"):
        tokenize(["cat " * 100])
