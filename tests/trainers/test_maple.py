"""MaPLe: both towers against the blocks of the package that they come from, and full runs."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.clip import FrozenCLIP, load_clip, tokenize
from cocoamix.clip.backbones import BACKBONES
from cocoamix.io import checkpoints
from cocoamix.prompts.context import PromptLearner
from cocoamix.prompts.multimodal import MultiModalPromptLearner
from tests.conftest import Run, Runner

BASE = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base"]
TINY = [*BASE, "TRAINER.MAPLE.PROMPT_DEPTH", "3"]
NAMES = ["eft", "great white shark", "West Highland White Terrier"]


def draw_images(count: int = 3) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(5))


def learner_of(clip: FrozenCLIP, depth: int, n_ctx: int = 2) -> MultiModalPromptLearner:
    learner = MultiModalPromptLearner(clip, NAMES, n_ctx, "a photo of a", depth, seed=3)
    with torch.no_grad():  # so that no two layers are equal
        for number, parameter in enumerate(learner.parameters()):
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
    return learner


def plain_text(clip: FrozenCLIP, learner: MultiModalPromptLearner) -> Tensor:
    """All 77 positions of every class by the package's own blocks, positions 1 to n replaced before a block."""
    tokens = tokenize([f"a photo of a {name}." for name in NAMES])
    x = clip.text.embed(tokens).detach()
    n = learner.n_ctx
    length = tokens.shape[1]
    x = torch.cat([x[:, :1], learner.ctx.expand(len(x), -1, -1), x[:, 1 + n :]], dim=1) + clip.text.positional_embedding
    mask = torch.full((length, length), float("-inf")).triu(1)
    for number, block in enumerate(clip.text.blocks):
        if 0 < number <= len(learner.compound_prompts_text):
            own = learner.compound_prompts_text[number - 1].expand(len(x), -1, -1)
            x = torch.cat([x[:, :1], own, x[:, 1 + n :]], dim=1)
        x = run_block(clip, block, x, mask)
    x = clip.text.ln_final(x)[torch.arange(len(x)), tokens.argmax(dim=-1)] @ clip.text.text_projection
    return F.normalize(x, dim=-1)


def run_block(clip: FrozenCLIP, block: torch.nn.Module, x: Tensor, mask: Tensor | None) -> Tensor:
    if clip.source == "open_clip":
        return block(x, attn_mask=mask)  # type: ignore[no-any-return]
    return block(x.permute(1, 0, 2)).permute(1, 0, 2)  # type: ignore[no-any-return]


def plain_image(clip: FrozenCLIP, images: Tensor, learner: MultiModalPromptLearner) -> Tensor:
    visual = clip.visual
    x = visual.conv1(images).flatten(2).permute(0, 2, 1)
    x = torch.cat([visual.class_embedding.expand(len(x), 1, -1), x], dim=1) + visual.positional_embedding
    x = visual.ln_pre(torch.cat([x, learner.proj(learner.ctx).expand(len(x), -1, -1)], dim=1))
    for number, block in enumerate(visual.transformer.resblocks):
        if 0 < number <= len(learner.compound_prompts_text):
            tokens = learner.compound_prompt_projections[number - 1](learner.compound_prompts_text[number - 1])
            x = torch.cat([x[:, : -learner.n_ctx], tokens.expand(len(x), -1, -1)], dim=1)
        x = run_block(clip, block, x, None)
    return F.normalize(visual.ln_post(x[:, 0]) @ visual.proj, dim=-1)


@pytest.mark.parametrize("depth", [1, 3, 4])
@pytest.mark.parametrize("source", ["clip", "open_clip"])
def test_both_towers_match_the_plain_path(source: str, depth: int) -> None:
    clip = load_clip("tiny", "random", source=source, precision="fp32")
    learner = learner_of(clip, depth)
    images = draw_images()
    found = {}
    for path in ("plain", "ours"):
        if path == "plain":
            text, image = plain_text(clip, learner), plain_image(clip, images, learner)
        else:
            text = clip.encode_prompts(learner())
            image = clip.encode_image_with(images, learner.vision_prompts())
        loss = F.cross_entropy(100 * image @ text.t(), torch.tensor([0, 1, 2]))
        found[path] = (text, image, torch.autograd.grad(loss, list(learner.parameters())))
    for one, other in zip(found["plain"][:2], found["ours"][:2], strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=0)
    for (name, _), one, other in zip(learner.named_parameters(), found["plain"][2], found["ours"][2], strict=True):
        assert one.norm() > 0, name
        assert (one - other).norm() / one.norm() < 1e-4, name


def test_chunks_include_the_deeper_tokens(tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(tiny_clip, 4)
    whole = tiny_clip.encode_prompts(learner())
    wanted = torch.autograd.grad(whole.sum(), list(learner.compound_prompts_text))
    monkeypatch.setattr(tiny_clip.text, "at_once", 1)
    parts = tiny_clip.encode_prompts(learner())
    torch.testing.assert_close(parts, whole, atol=1e-6, rtol=0)
    for one, other in zip(wanted, torch.autograd.grad(parts.sum(), list(learner.compound_prompts_text)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_masked_zero_vision_prompts_leave_features_unchanged(
    tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(tiny_clip, depth=1)
    torch.nn.init.zeros_(learner.proj.weight)
    torch.nn.init.zeros_(learner.proj.bias)
    images = draw_images()
    frozen = tiny_clip.encode_image(images)
    seen = tiny_clip.encode_image_with(images, learner.vision_prompts())
    assert (seen - frozen).abs().max() > 1e-4, "a zero token still receives attention"
    attend = F.scaled_dot_product_attention

    def masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask = torch.arange(key.shape[2]) < key.shape[2] - learner.n_ctx
        return attend(query, key, value, attn_mask=mask.expand(query.shape[2], -1))

    monkeypatch.setattr(F, "scaled_dot_product_attention", masked)
    unseen = tiny_clip.encode_image_with(images, learner.vision_prompts())
    torch.testing.assert_close(unseen, frozen, atol=1e-6, rtol=0)


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


def test_uniform_ensemble_uses_the_tuned_image_features(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both prompts are compared with the only image feature there is, the one with vision prompts."""
    from cocoamix.trainers.maple import MaPLe

    built: list[MaPLe] = []
    monkeypatch.setattr(MaPLe, "train", lambda self: built.append(self))
    assert run(*TINY, "TRAINER.MAPLE.ENSEMBLE", "uniform", trainer="MaPLe").status == 0
    (trainer,) = built
    images = draw_images()
    with torch.no_grad():
        trainer.before_test()
        tuned = trainer.clip.encode_image_with(images, trainer.prompt_learner.vision_prompts())
        written = trainer.clip.encode_classes(trainer.classnames, ["a centered satellite photo of {}."])
        wanted = 100 * tuned @ (trainer.text_features() + written).t() / 2
        torch.testing.assert_close(trainer.model_inference(images), wanted, atol=1e-4, rtol=1e-4)
        assert (trainer.clip.encode_image(images) - tuned).abs().max() > 1e-3


def test_words_beyond_the_learned_ones_are_fixed(tiny_clip: FrozenCLIP) -> None:
    """At the start, with depth 1, the prompt is the written one: [a photo] of a {class}."""
    learner = MultiModalPromptLearner(tiny_clip, NAMES, 2, "a_photo_of_a", 1)
    written = tiny_clip.encode_texts([f"a photo of a {name}." for name in NAMES])
    torch.testing.assert_close(tiny_clip.encode_prompts(learner()), written, atol=1e-6, rtol=0)
    assert learner.ctx.shape[0] == 2
    assert learner.layout.shared == 5, "the other words are shared, too"
    random = MultiModalPromptLearner(tiny_clip, NAMES, 5, "a photo of a", 1)
    assert random.initial_context == "X X X X X"
    suffix = PromptLearner(tiny_clip, NAMES, ctx_init="a photo").token_suffix
    assert learner.token_suffix.shape == suffix.shape


def test_parameters_at_true_size(undrawn_weights: None) -> None:
    sizes = BACKBONES["ViT-B/16"].sizes
    clip = load_clip("ViT-B/16", "random", precision="fp32")
    learner = MultiModalPromptLearner(clip, NAMES, 2, "a photo of a", 9)
    by_hand = 9 * 2 * 512 + 9 * (512 * 768 + 768)
    assert (sizes.text_width, sizes.vision_width) == (512, 768)
    assert sum(p.numel() for p in learner.parameters()) == by_hand == 3_555_072


def weights(done: Run, epoch: int = 4) -> dict[str, Tensor]:
    assert done.status == 0, done.output[-800:]
    content = checkpoints.load(done.folder / "MultiModalPromptLearner" / f"model.pth.tar-{epoch}")
    return content["state_dict"]  # type: ignore[no-any-return]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_trains_resumes_and_transfers_to_new_classes(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.trainers.test_resume import stopping_at

    whole = run(*TINY, "OPTIM.MAX_EPOCH", "6", trainer="MaPLe", name="whole")
    losses = [float(x) for x in re.findall(r"loss [\d.]+ \(([\d.]+)\)", whole.output)]
    assert sum(losses[-4:]) < sum(losses[:4])
    state = weights(whole, 6)
    assert {"prompt_learner.ctx", "prompt_learner.proj.weight", "prompt_learner.compound_prompts_text.1"} <= set(state)
    with monkeypatch.context() as patch:
        stopping_at(3, patch)
        assert run(*TINY, "OPTIM.MAX_EPOCH", "6", trainer="MaPLe", name="stopped").status == 130
    resumed = run(*TINY, "OPTIM.MAX_EPOCH", "6", trainer="MaPLe", name="stopped")
    assert "Resuming from" in resumed.output
    assert same(state, weights(resumed, 6))
    assert resumed.results["metrics"] == whole.results["metrics"]
    assert whole.results["trained_parameters"] == 3 * 2 * 128 + 3 * (128 * 128 + 128)
    # MaPLe's own checkpoints contain the whole model in addition to the learner, and do not record their origin.
    path = whole.folder / "MultiModalPromptLearner" / "model.pth.tar-6"
    content = checkpoints.load(path)
    del content["cocoamix"]
    content["state_dict"].update({f"image_encoder.part{n}": torch.ones(1) for n in range(21)})
    checkpoints.save(path, content)
    for subset in ("base", "new", "all"):
        evaluate = ["--eval-only", "--model-dir", str(whole.folder), "DATASET.SUBSAMPLE_CLASSES", subset]
        done = run(*evaluate, *TINY[:2], *TINY[4:], trainer="MaPLe", name=subset)
        assert done.status == 0, done.output[-800:]
        assert "also holds image_encoder.part0" in done.output
        assert "13 more, not used here" in done.output
        if subset == "base":
            assert done.results["metrics"] == whole.results["metrics"]
    content["state_dict"]["prompt_learner.token_prefix"] += 1
    checkpoints.save(path, content)
    other = run("--eval-only", "--model-dir", str(whole.folder), *TINY, trainer="MaPLe", name="other")
    assert other.status == 2
    assert "other CLIP weights" in other.output


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
def test_precisions_agree(run: Runner, shared_run: Runner, precision: str) -> None:
    few = [*TINY, "OPTIM.MAX_EPOCH", "2"]
    exact = weights(shared_run(*few, "TRAINER.MAPLE.PREC", "fp32", trainer="MaPLe", name="exact"), 2)
    rough = weights(run(*few, "TRAINER.MAPLE.PREC", precision, trainer="MaPLe", name="rough"), 2)
    still = ["OPTIM.LR", "0.0", "OPTIM.WARMUP_CONS_LR", "0.0", "OPTIM.WEIGHT_DECAY", "0.0"]
    start = weights(shared_run(*few, *still, trainer="MaPLe", name="start"), 2)
    for key in ("prompt_learner.ctx", "prompt_learner.compound_prompts_text.1", "prompt_learner.proj.weight"):
        moved = (exact[key] - start[key]).norm()
        assert moved > 0
        assert (rough[key] - exact[key]).norm() < 0.1 * moved, key


def test_invalid_depths_are_refused(run: Runner) -> None:
    deep = run(*BASE, "TRAINER.MAPLE.PROMPT_DEPTH", "5", trainer="MaPLe", name="deep")
    assert (deep.status, "has 4 layers" in deep.output) == (2, True)
    none = run(*BASE, "TRAINER.MAPLE.PROMPT_DEPTH", "0", trainer="MaPLe", name="none")
    assert (none.status, "PROMPT_DEPTH is 0" in none.output) == (2, True)


def test_a_resnet_is_refused(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    from cocoamix.clip import backbones

    sizes = backbones.Sizes(64, 32, (1, 1, 1, 1), 8, None, 128, 2)
    monkeypatch.setitem(backbones.BACKBONES, "RN-tiny", backbones.Backbone(sizes, ""))
    done = run(*BASE, "MODEL.BACKBONE.NAME", "RN-tiny", trainer="MaPLe")
    assert (done.status, "is a ResNet" in done.output) == (2, True)
