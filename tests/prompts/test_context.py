"""A context initialised with words must match the written prompt, whatever the position of the class name."""

from __future__ import annotations

import pytest
import torch

from cocoamix.clip import FrozenCLIP
from cocoamix.errors import UserError
from cocoamix.prompts.context import PromptLearner

NAMES = ["cat", "Herbaceous_Vegetation Land", "2012 Bentley Continental Flying Spur Sedan"]


@pytest.mark.parametrize(
    ("position", "written"),
    [("end", "a photo of a {}."), ("middle", "a photo {} of a."), ("front", "{} a photo of a.")],
)
@pytest.mark.parametrize("class_specific", [False, True])
def test_initial_words_match_the_written_prompt(
    tiny_clip: FrozenCLIP, position: str, written: str, class_specific: bool
) -> None:
    learner = PromptLearner(tiny_clip, NAMES, ctx_init="a_photo of a", class_specific=class_specific, position=position)
    wanted = tiny_clip.encode_texts([written.format(name.replace("_", " ")) for name in NAMES])
    torch.testing.assert_close(tiny_clip.encode_prompts(learner()), wanted, atol=1e-6, rtol=0)
    assert learner.ctx.shape == ((3, 4, 128) if class_specific else (4, 128))


def test_state_has_coops_keys_and_shapes(tiny_clip: FrozenCLIP) -> None:
    learner = PromptLearner(tiny_clip, NAMES, n_ctx=5)
    shapes = {key: tuple(value.shape) for key, value in learner.state_dict().items()}
    assert shapes == {"ctx": (5, 128), "token_prefix": (3, 1, 128), "token_suffix": (3, 71, 128)}


@pytest.mark.parametrize("class_specific", [False, True])
@pytest.mark.parametrize("position", ["end", "middle", "front"])
def test_gradient_reaches_every_context_vector(tiny_clip: FrozenCLIP, position: str, class_specific: bool) -> None:
    learner = PromptLearner(tiny_clip, NAMES, n_ctx=3, class_specific=class_specific, position=position)
    tiny_clip.encode_prompts(learner())[:, 0].sum().backward()
    assert learner.ctx.grad is not None
    assert (learner.ctx.grad.abs().sum(dim=-1) > 0).all()
    assert not any(parameter.grad is not None for parameter in tiny_clip.parameters())


def test_random_context_depends_only_on_the_seed(tiny_clip: FrozenCLIP) -> None:
    torch.manual_seed(0)
    one = PromptLearner(tiny_clip, NAMES, seed=3).ctx
    torch.manual_seed(1)
    again = PromptLearner(tiny_clip, NAMES[:1], seed=3).ctx
    assert torch.equal(one, again)
    assert not torch.equal(one, PromptLearner(tiny_clip, NAMES, seed=4).ctx)
    assert one.std().item() == pytest.approx(0.02, rel=0.1)


def test_words_of_several_tokens_count_as_tokens(tiny_clip: FrozenCLIP) -> None:
    learner = PromptLearner(tiny_clip, ["cat"], ctx_init="a photomicrograph of")
    wanted = tiny_clip.encode_texts(["a photomicrograph of cat."])
    assert learner.n_ctx > 3
    torch.testing.assert_close(tiny_clip.encode_prompts(learner()), wanted, atol=1e-6, rtol=0)


def test_context_that_is_too_long_is_refused(tiny_clip: FrozenCLIP) -> None:
    with pytest.raises(UserError, match="tokens, but the model reads 77"):
        PromptLearner(tiny_clip, ["cat"], n_ctx=75)


def test_position_of_padding_does_not_matter(tiny_clip: FrozenCLIP) -> None:
    """Encoding a class alone (shorter rows) or with a longer one gives the same feature."""
    together = PromptLearner(tiny_clip, NAMES, seed=1)
    alone = PromptLearner(tiny_clip, NAMES[:1], seed=1)
    a, b = tiny_clip.encode_prompts(together())[0], tiny_clip.encode_prompts(alone())[0]
    torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
