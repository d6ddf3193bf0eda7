"""The fast text encoder against the plain one: the package's own blocks over all 77 positions of every prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.plain import PlainPrompts
from cocoamix.clip import FrozenCLIP, Layout, Prompts, load_clip, text_encoder, tokenize
from cocoamix.clip.backbones import BACKBONES
from cocoamix.prompts.context import PromptLearner

PETS = ["abyssinian", "american pit bull terrier"]
CARS = ["2012 Rolls-Royce Phantom Drophead Coupe Convertible", "2007 BMW X5 SUV"]
IMAGENET = ["great white shark", "West Highland White Terrier", "eft"]
NAMES = [*PETS, *CARS, *IMAGENET]


@pytest.fixture(scope="module", params=["clip", "open_clip"])
def large(request: pytest.FixtureRequest) -> FrozenCLIP:
    """A text tower of ViT-B/16's widths in three layers, with a small image tower."""
    sizes = replace(BACKBONES["ViT-B/16"].sizes, vision_layers=1, vision_width=64, text_layers=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKBONES, "ViT-B/16", replace(BACKBONES["ViT-B/16"], sizes=sizes))
        return load_clip("ViT-B/16", "random", source=request.param, precision="fp32")


def gradient(features: Tensor, context: Tensor) -> Tensor:
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(3))
    return torch.autograd.grad((features * weights).sum(), context)[0]


@pytest.mark.parametrize("n_ctx", [2, 4, 16])
def test_features_and_gradients_match_the_plain_path(large: FrozenCLIP, n_ctx: int) -> None:
    learner = PromptLearner(large, NAMES, n_ctx=n_ctx, seed=1)
    plain = PlainPrompts(large, NAMES, learner.ctx).encode()
    ours = large.encode_prompts(learner())
    torch.testing.assert_close(ours, plain, atol=2e-6, rtol=0)
    wanted = gradient(plain, learner.ctx)
    assert (gradient(ours, learner.ctx) - wanted).norm() / wanted.norm() < 1e-5


@pytest.mark.parametrize("at_once", [1, 3, len(NAMES)])
@pytest.mark.parametrize("class_specific", [False, True])
def test_chunks_change_nothing(
    tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch, at_once: int, class_specific: bool
) -> None:
    learner = PromptLearner(tiny_clip, NAMES, n_ctx=3, class_specific=class_specific)
    whole = tiny_clip.encode_prompts(learner())
    runs = []
    checkpoint = text_encoder.checkpoint
    monkeypatch.setattr(text_encoder, "checkpoint", lambda *args, **more: runs.append(1) or checkpoint(*args, **more))
    monkeypatch.setattr(tiny_clip.text, "at_once", at_once)
    parts = tiny_clip.encode_prompts(learner())
    assert len(runs) == (0 if at_once == len(NAMES) else -(-len(NAMES) // at_once))
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=0)
    torch.testing.assert_close(gradient(parts, learner.ctx), gradient(whole, learner.ctx), atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(tiny_clip.encode_prompts(learner()), whole, atol=1e-6, rtol=0)
    assert len(runs) in (0, -(-len(NAMES) // at_once)), "without gradients nothing is run twice"


def test_a_budget_bounds_memory_for_the_backward_pass(tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory kept for the backward pass stops growing with the number of classes."""

    def kept(names: list[str]) -> int:
        learner = PromptLearner(tiny_clip, names, n_ctx=4)
        total = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.untyped_storage().nbytes() if tensor.grad_fn is not None else 0
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            tiny_clip.encode_prompts(learner())
        return total

    few, many = kept(NAMES * 4), kept(NAMES * 8)
    assert many > 1.8 * few
    monkeypatch.setattr(text_encoder, "BUDGET", 2**21)
    monkeypatch.setattr(text_encoder, "_CHUNK", 2**19)
    few, many = kept(NAMES * 4), kept(NAMES * 8)
    assert many < 1.2 * few


def test_prompt_sets_with_different_contexts_share_class_name_tokens(tiny_clip: FrozenCLIP) -> None:
    learner = PromptLearner(tiny_clip, NAMES, n_ctx=3)
    prompts = learner()
    prefixes = torch.stack([prompts.prefix, prompts.prefix.flip(0), 2 * prompts.prefix])
    together = tiny_clip.encode_prompts(Prompts(prefixes, prompts.own, prompts.layout))
    alone = [tiny_clip.encode_prompts(Prompts(prefix, prompts.own, prompts.layout)) for prefix in prefixes]
    torch.testing.assert_close(together, torch.stack(alone), atol=1e-6, rtol=0)


def test_texts_share_their_common_prefix(tiny_clip: FrozenCLIP) -> None:
    written = ["a photo of a cat.", "a photo of a dog.", "a photo of an old car."]
    layout = Layout.of_tokens(tokenize(written))
    assert (layout.shared, layout.lengths) == (4, (4, 4, 5))  # [SOS] a photo of
    same = Layout.of_tokens(tokenize(["a cat", "a cat"]))
    assert same.lengths == (1, 1), "the end-of-text token is read, so it is never shared"
    together = tiny_clip.encode_texts(written)
    for one, text_alone in zip(together, written, strict=True):
        torch.testing.assert_close(tiny_clip.encode_texts([text_alone])[0], one, atol=1e-6, rtol=0)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
def test_gradients_in_other_precisions(precision: str) -> None:
    found = {}
    for name in ("fp32", precision):
        clip = load_clip("tiny", "random", precision=name)
        learner = PromptLearner(clip, NAMES, n_ctx=4, seed=2)
        features = clip.encode_prompts(learner())
        assert features.dtype == torch.float32
        found[name] = gradient(features, learner.ctx)
    assert F.cosine_similarity(found["fp32"].flatten(), found[precision].flatten(), dim=0) > 0.99
