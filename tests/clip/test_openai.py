"""Trees with their own `clip` folder, whose class CLIP takes more arguments than OpenAI's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cocoamix import compat
from cocoamix.clip import load_clip
from cocoamix.errors import UserError

compat.import_openai_clip()

from clip.model import CLIP  # noqa: E402


class MaPLes(CLIP):
    """MaPLe's contract: without its own prompts, the model for `trainer` CoOp is OpenAI's."""

    def __init__(self, *arguments: Any, design_details: dict[str, Any], **named: Any) -> None:
        assert design_details["trainer"] == "CoOp"
        assert {key: design_details[key] for key in ("vision_depth", "language_depth")} == {
            "vision_depth": 0,
            "language_depth": 0,
        }
        super().__init__(*arguments, **named)


class WithoutDetails(MaPLes):
    def __init__(self, *arguments: Any, design_details: Any = None, **named: Any) -> None:
        super().__init__(*arguments, design_details=design_details, **named)


class Unknown(CLIP):
    def __init__(self, adapter: int, **named: Any) -> None:
        super().__init__(**named)


class Refusing(CLIP):
    def __init__(self, design_details: dict[str, Any], **named: Any) -> None:
        super().__init__(**{**named, "embed_dim": design_details["prompt_bank"]})


@pytest.mark.parametrize("theirs", [MaPLes, WithoutDetails])
def test_a_class_with_design_details_gives_openais_features(theirs: type, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = load_clip("tiny", source="clip", precision="fp32")
    monkeypatch.setattr("clip.model.CLIP", theirs)
    found = load_clip("tiny", precision="fp32")
    assert (found.source, found.weights_hash) == ("clip", wanted.weights_hash)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found.encode_image(images), wanted.encode_image(images))
    assert torch.equal(found.encode_texts(["a cat", "a dog"]), wanted.encode_texts(["a cat", "a dog"]))


@pytest.mark.parametrize(("theirs", "reason"), [(Unknown, "it needs adapter"), (Refusing, "it refuses MaPLe's")])
def test_unknown_class_is_named_with_a_fix(theirs: type, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clip.model.CLIP", theirs)
    message = rf"test_openai\.py is not OpenAI's: {reason}.*`pip install open_clip_torch` and set .*SOURCE auto\.$"
    with pytest.raises(UserError, match=message) as raised:
        load_clip("tiny", source="clip")
    assert "clip-anytorch" not in str(raised.value)  # the tree's folder would hide it

    def absent() -> None:
        raise ImportError("No module named 'open_clip'")

    with monkeypatch.context() as patch:
        patch.setattr(compat, "import_open_clip", absent)
        with pytest.raises(UserError, match=r"open_clip: No module .*\. `pip install open_clip_torch`\.$"):
            load_clip("tiny")
    pytest.importorskip("open_clip")
    assert load_clip("tiny").source == "open_clip"
