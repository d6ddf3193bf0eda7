"""The hand-crafted prompt: which templates it uses, and features that are computed once."""

from __future__ import annotations

import pytest
import torch

from cocoamix.clip import FrozenCLIP
from cocoamix.prompts.hand_crafted import HandCraftedPrompt


@pytest.mark.parametrize(
    ("given", "method", "wanted"),
    [
        ("dataset", "", ["{} texture."]),
        ("dataset", "KgCoOp", ["a photo of a {}, a type of texture."]),
        ("art of {}.", "", ["art of {}."]),
        (["dataset", "a {}."], "", ["{} texture.", "a {}."]),
    ],
)
def test_templates_are_given_or_chosen_by_dataset(
    tiny_clip: FrozenCLIP, given: str | list[str], method: str, wanted: list[str]
) -> None:
    assert HandCraftedPrompt(tiny_clip, given, "DescribableTextures", method).templates == wanted


def test_features_follow_the_classes(tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, calls = HandCraftedPrompt(tiny_clip, "a {}.", "EuroSAT"), []
    encode = tiny_clip.encode_texts
    monkeypatch.setattr(tiny_clip, "encode_texts", lambda texts: calls.append(texts) or encode(texts))
    first = prompt.of(["cat", "dog"])
    assert prompt.of(["cat", "dog"]) is first
    assert calls == [["a cat.", "a dog."]]
    torch.testing.assert_close(prompt.of(["dog", "cat"]), first.flip(0))
    torch.testing.assert_close(first, encode(["a cat.", "a dog."]))
