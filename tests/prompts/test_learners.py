"""What MaPLe, CoCoOp, DePT and T_En learn: initial values, both towers, chunks, memory, sizes."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip import text_encoder as text
from cocoamix.clip.backbones import BACKBONES
from cocoamix.coa.weights import CoAWeights
from cocoamix.errors import UserError
from cocoamix.prompts.channel_head import ChannelHead
from cocoamix.prompts.conditional import ConditionalPromptLearner
from cocoamix.prompts.context import PromptLearner
from cocoamix.prompts.multimodal import MultiModalPromptLearner, need_vit
from cocoamix.prompts.sample_weighting import make_generator
from tests.conftest import CLASSES, ROOT
from tests.prompts.towers import plain_image, plain_text

NAMES = ["eft", "great white shark", "West Highland White Terrier"]


def unit(count: int, seed: int = 0) -> Tensor:
    return F.normalize(torch.randn(count, 128, generator=torch.Generator().manual_seed(seed)), dim=-1)


def coupled(clip: FrozenCLIP, depth: int) -> MultiModalPromptLearner:
    learner = MultiModalPromptLearner(clip, NAMES, 2, "a photo of a", depth, seed=3)
    with torch.no_grad():  # so that no two layers are equal
        for number, parameter in enumerate(learner.parameters()):
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
    return learner


# ---------------------------------------------------------------------- tokens in both towers


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("source", ["clip", "open_clip"])
def test_both_towers_match_the_plain_path(source: str, depth: int) -> None:
    clip = load_clip("tiny", "random", source=source, precision="fp32")
    learner, images = coupled(clip, depth), torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    results = {}
    for path in ("plain", "ours"):
        if path == "plain":
            texts = plain_text(clip, learner, "a photo of a", NAMES)
            image = plain_image(clip, images, learner)
        else:
            texts = clip.encode_prompts(learner())
            image = clip.encode_image_with(images, learner.vision_prompts())
        loss = F.cross_entropy(100 * image @ texts.t(), torch.tensor([0, 1, 2]))
        results[path] = (texts, image, torch.autograd.grad(loss, list(learner.parameters())))
    for one, other in zip(results["plain"][:2], results["ours"][:2], strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=0)
    for (name, _), one, other in zip(learner.named_parameters(), results["plain"][2], results["ours"][2], strict=True):
        assert one.norm() > 0, name
        assert (one - other).norm() / one.norm() < 1e-4, name


def test_chunks_include_the_deeper_tokens(tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = coupled(tiny_clip, 4)
    whole = tiny_clip.encode_prompts(learner())
    wanted = torch.autograd.grad(whole.sum(), list(learner.compound_prompts_text))
    monkeypatch.setattr(tiny_clip.text, "at_once", 1)
    parts = tiny_clip.encode_prompts(learner())
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=0)
    for one, other in zip(wanted, torch.autograd.grad(parts.sum(), list(learner.compound_prompts_text)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_initial_tokens_and_maps(tiny_clip: FrozenCLIP) -> None:
    """Deeper tokens are small and all different; the deeper maps start as copies of one another, not of the first."""
    learner = MultiModalPromptLearner(tiny_clip, NAMES, 2, "a photo of a", 4, seed=3)
    tokens = torch.stack(list(learner.compound_prompts_text))
    assert tokens.std().item() == pytest.approx(0.02, rel=0.1)
    assert not torch.equal(tokens[0], tokens[1])
    first, *others = [one.weight for one in learner.compound_prompt_projections]
    assert len(others) == 2
    assert all(torch.equal(one, first) for one in others)
    assert not torch.equal(first, learner.proj.weight)
    assert len({id(one) for one in (first, *others)}) == 3, "they are separate parameters"


def test_words_beyond_the_learned_ones_are_fixed(tiny_clip: FrozenCLIP) -> None:
    """At the start, with depth 1, the prompt is the written one: [a photo] of a {class}."""
    learner = MultiModalPromptLearner(tiny_clip, NAMES, 2, "a_photo_of_a", 1)
    written = tiny_clip.encode_texts([f"a photo of a {name}." for name in NAMES])
    torch.testing.assert_close(tiny_clip.encode_prompts(learner()), written, atol=1e-6, rtol=0)
    assert learner.ctx.shape[0] == 2
    assert learner.layout.shared == 5, "the other words are shared, too"
    assert MultiModalPromptLearner(tiny_clip, NAMES, 5, "a photo of a", 1).initial_context == "X X X X X"
    suffix = PromptLearner(tiny_clip, NAMES, ctx_init="a photo").token_suffix
    assert learner.token_suffix.shape == suffix.shape


def test_tokens_need_a_vit() -> None:
    resnet: Any = SimpleNamespace(name="RN50", sizes=SimpleNamespace(vision_layers=(3, 4, 6, 3)))
    with pytest.raises(UserError, match=r"MODEL\.BACKBONE\.NAME"):
        need_vit(resnet, "MaPLe")


# ---------------------------------------------------------------------- a context for each image


def test_creating_the_network_does_not_change_other_draws(
    tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it seed the generators of GPUs, as torch.manual_seed does."""
    torch.manual_seed(5)
    wanted = nn.Linear(128, 8).weight
    torch.manual_seed(7)
    before = torch.get_rng_state()
    monkeypatch.setattr(torch, "manual_seed", lambda seed: pytest.fail("seeds every device"))
    learner = ConditionalPromptLearner(tiny_clip, CLASSES, seed=5)
    assert torch.equal(learner.meta_net.linear1.weight, wanted)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("at_once", [1, 7, 25])
def test_image_chunks_change_nothing(tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Chunks of fewer prompts than one image has, than two have, than all have."""
    learner = ConditionalPromptLearner(tiny_clip, CLASSES, ctx_init="a photo of a", seed=3)

    def gradients() -> tuple[Tensor, ...]:
        encoded = tiny_clip.encode_prompts(learner(unit(5)))
        weights = torch.randn(encoded.shape, generator=torch.Generator().manual_seed(1))
        return encoded, *torch.autograd.grad((encoded * weights).sum(), list(learner.parameters()))

    whole = gradients()
    sizes: list[int] = []
    checkpoint = text.checkpoint

    def counted(*args: object, **more: object) -> object:
        sizes.append(len(args[1]))  # type: ignore[arg-type]
        return checkpoint(*args, **more)

    monkeypatch.setattr(text, "checkpoint", counted)
    monkeypatch.setattr(tiny_clip.text, "at_once", at_once)
    for part, wanted in zip(gradients(), whole, strict=True):
        torch.testing.assert_close(part, wanted, atol=2e-5, rtol=1e-4)
    assert max(sizes) == max(1, at_once // 10)
    assert sum(sizes) == 5 * (1 if at_once >= 10 else -(-10 // at_once))


def test_budget_bounds_activation_memory(tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = ConditionalPromptLearner(tiny_clip, CLASSES, ctx_init="a photo of a")

    def kept(images: int) -> int:
        total = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal total
            total += tensor.untyped_storage().nbytes() if tensor.grad_fn is not None else 0
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            tiny_clip.encode_prompts(learner(unit(images)))
        return total

    few, many = kept(4), kept(8)
    assert many > 1.8 * few
    monkeypatch.setattr(text, "BUDGET", 2**22)
    monkeypatch.setattr(text, "_CHUNK", 2**21)
    assert kept(16) < kept(8) + 0.3 * few


# ---------------------------------------------------------------------- sizes


def count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def test_parameters_at_true_size(undrawn_weights: None) -> None:
    """Of ViT-B/16, with text width 512, embedding 512 and vision width 768: by hand, as built, and in METHODS.md."""
    clip = load_clip("ViT-B/16", "random", precision="fp32")
    context, words = PromptLearner(clip, CLASSES, n_ctx=16), PromptLearner(clip, CLASSES, ctx_init="a photo of a")
    conditional = ConditionalPromptLearner(clip, CLASSES, ctx_init="a photo of a")
    coupled, head = MultiModalPromptLearner(clip, CLASSES, 2, "a photo of a", 9), ChannelHead(512, 500)
    assert count(context) == 16 * 512
    assert count(words) == 4 * 512
    assert count(conditional) == 4 * 512 + 512 * 32 + 32 + 32 * 512 + 512
    assert count(coupled) == 9 * (2 * 512 + 512 * 768 + 768)
    assert count(head) == 4 * 512 + 512 * 500 + 500  # 500 are ImageNet's base classes
    stated = {
        "CoOp": [count(context), count(words)],
        "CoCoOp": [count(conditional)],
        "KgCoOp": [count(words)],
        "ProGrad": [count(context)],
        "CoCoAMix": [count(context, CoAWeights(clip.logit_scale))],
        "MaPLe": [count(coupled)],
        "DePT": [count(context) + 4 * 512, 513, count(context, head), 500],
        "DePTKgCoOp": [count(words) + 4 * 512, 513, count(words, head), 500],
    }
    page = (ROOT / "docs" / "METHODS.md").read_text(encoding="utf-8")
    table = page[page.index("| `--trainer` | parameters") : page.index("- **How the cost was measured.**")]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    column = {row[0].split("`")[1]: row[1] for row in rows}
    for trainer, numbers in stated.items():
        found = [int(text.replace(",", "")) for text in re.findall(r"\d[\d,]*\d", column[trainer])]
        assert found == numbers, trainer

    mix, deeper = count(context, CoAWeights(clip.logit_scale)), count(coupled.compound_prompt_projections)
    on_coop, on_kgcoop, on_cocoop = (count(one, head) for one in (context, words, conditional))
    for sentence in (
        f"{count(coupled):,}, which gives {100 * mix / count(coupled):.2f} %. The paper's {100 * mix / deeper:.2f} %",
        f"({deeper:,}), without the first",
        f"{on_coop:,} on CoOp ({100 * mix / on_coop:.1f} %),",
        f"{on_kgcoop:,} on KgCoOp ({100 * mix / on_kgcoop:.1f} %) and {on_cocoop:,} on CoCoOp",
        f"which fits the {100 * mix / on_cocoop:.1f} %",
        f"CoOp, {mix:,} of {count(context, ChannelHead(512, 5)):,}.",
    ):
        assert sentence in " ".join(page.split())
    channels = sum(BACKBONES[name].sizes.embedding for name in ("RN50", "RN101", "ViT-B/32", "ViT-B/16"))
    assert count(make_generator(channels, 4)) == 2560 * 80 + 80 + 80 * 4 + 4 == 205_204  # T_En's figure
