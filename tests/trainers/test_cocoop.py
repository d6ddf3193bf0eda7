"""CoCoOp: the image-conditioned context, its chunks, its checkpoints; and the parameter counts of all methods."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.plain import PlainPrompts
from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip import text_encoder as text
from cocoamix.coa.weights import CoAWeights
from cocoamix.io import checkpoints
from cocoamix.prompts.channel_head import ChannelHead
from cocoamix.prompts.conditional import ConditionalPromptLearner
from cocoamix.prompts.context import PromptLearner
from cocoamix.prompts.multimodal import MultiModalPromptLearner
from tests.conftest import CLASSES, ROOT, Runner
from tests.trainers.test_coop import BASE
from tests.trainers.test_kgcoop import build

CC = {"trainer": "CoCoOp"}
WORDS = ["TRAINER.COCOOP.CTX_INIT", "a photo of a"]
SHORT = [*BASE, *WORDS, "OPTIM.MAX_EPOCH", "2"]


def unit(count: int, seed: int = 0) -> torch.Tensor:
    return F.normalize(torch.randn(count, 128, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_text_features_of_each_image_match_the_plain_path(tiny_clip: FrozenCLIP) -> None:
    learner = ConditionalPromptLearner(tiny_clip, CLASSES, ctx_init="a photo of a", seed=3)
    features = unit(3)
    ours = tiny_clip.encode_prompts(learner(features))
    for feature, mine in zip(features, ours, strict=True):
        first, second = learner.meta_net.linear1, learner.meta_net.linear2
        hidden = (first.weight @ feature + first.bias).clamp(min=0)
        context = learner.ctx + (second.weight @ hidden + second.bias)
        plain = PlainPrompts(tiny_clip, CLASSES, context).encode()
        torch.testing.assert_close(mine, plain, atol=2e-6, rtol=0)
    assert (ours[0] - ours[1]).abs().max() > 1e-4


def test_creating_the_network_does_not_change_other_draws(
    tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it seed the generators of GPUs, as torch.manual_seed does."""
    torch.manual_seed(5)
    wanted = torch.nn.Linear(128, 8).weight
    torch.manual_seed(7)
    before = torch.get_rng_state()
    monkeypatch.setattr(torch, "manual_seed", lambda seed: pytest.fail("seeds every device"))
    learner = ConditionalPromptLearner(tiny_clip, CLASSES, seed=5)
    assert torch.equal(learner.meta_net.linear1.weight, wanted)
    assert torch.equal(torch.get_rng_state(), before)


def test_zero_network_matches_coop(tmp_path: Path, data_root: Path, tiny_config: Path) -> None:
    """Logits, loss and the gradient of the context; and, while the network is fixed, every step."""
    coop = build(tmp_path, data_root, "CoOp", *BASE, "TRAINER.COOP.CTX_INIT", "a photo of a")
    conditional = build(tmp_path, data_root, "CoCoOp", *BASE, *WORDS)
    for parameter in conditional.prompt_learner.meta_net.parameters():
        parameter.data.zero_()
        parameter.requires_grad_(False)
    features, labels = unit(7), torch.arange(7) % 5
    for trainer in (coop, conditional):
        trainer.begin_training()  # type: ignore[attr-defined]
        trainer.epoch = trainer.batch_idx = 0
        trainer._optims["prompt_learner"].param_groups[0]["lr"] = 0.01
    for _ in range(3):
        (one, logits), (other, same) = (t.compute_loss(features, labels) for t in (coop, conditional))
        torch.testing.assert_close(same, logits, atol=1e-4, rtol=1e-5)
        assert other["loss"].item() == pytest.approx(one["loss"].item(), rel=1e-5)
        wanted, found = (t.take_step(features, labels) for t in (coop, conditional))
        assert found["loss"] == pytest.approx(wanted["loss"], rel=1e-5)
        torch.testing.assert_close(conditional.prompt_learner.ctx, coop.prompt_learner.ctx, atol=1e-6, rtol=1e-5)
    moved = coop.prompt_learner.ctx - PromptLearner(coop.clip, CLASSES[:5], ctx_init="a photo of a").ctx
    assert moved.abs().max() > 1e-3


@pytest.mark.parametrize("at_once", [1, 7, 25])
def test_image_chunks_change_nothing(tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Chunks of fewer prompts than one image has, than two have, than all have."""
    learner = ConditionalPromptLearner(tiny_clip, CLASSES, ctx_init="a photo of a", seed=3)
    features = unit(5)

    def gradients() -> tuple[torch.Tensor, ...]:
        encoded = tiny_clip.encode_prompts(learner(features))
        weights = torch.randn(encoded.shape, generator=torch.Generator().manual_seed(1))
        return encoded, *torch.autograd.grad((encoded * weights).sum(), list(learner.parameters()))

    whole = gradients()
    runs: list[int] = []
    checkpoint = text.checkpoint

    def counted(*args: object, **more: object) -> object:
        runs.append(len(args[1]))  # type: ignore[arg-type]
        return checkpoint(*args, **more)

    monkeypatch.setattr(text, "checkpoint", counted)
    monkeypatch.setattr(tiny_clip.text, "at_once", at_once)
    for part, wanted in zip(gradients(), whole, strict=True):
        torch.testing.assert_close(part, wanted, atol=2e-5, rtol=1e-4)
    assert max(runs) == max(1, at_once // 10)
    assert sum(runs) == 5 * (1 if at_once >= 10 else -(-10 // at_once))


def test_budget_bounds_activation_memory(tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = ConditionalPromptLearner(tiny_clip, CLASSES, ctx_init="a photo of a")

    def kept(images: int) -> int:
        total = 0

        def pack(tensor: torch.Tensor) -> torch.Tensor:
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


def test_training_and_evaluation_on_all_subsets(run: Runner, shared_run: Runner) -> None:
    """Batches of several images, any evaluation batch size, base, new and all."""
    trained = shared_run(*SHORT, **CC)
    assert trained.results["trained_parameters"] == 4 * 128 + (128 * 8 + 8) + (8 * 128 + 128)
    state = checkpoints.load(trained.folder / "prompt_learner" / "model.pth.tar-2")["state_dict"]
    network = {f"meta_net.linear{layer}.{kind}" for layer in (1, 2) for kind in ("weight", "bias")}
    assert set(state) == {"ctx", "token_prefix", "token_suffix", *network}
    evaluate = ["--eval-only", "--model-dir", str(trained.folder)]
    one = run(*evaluate, *SHORT, "DATALOADER.TEST.BATCH_SIZE", "3", name="base", **CC)
    assert one.results["metrics"] == pytest.approx(
        trained.results["metrics"], rel=1e-4
    )  # batch sizes round differently
    uniform = ["TRAINER.COCOOP.ENSEMBLE", "uniform"]
    for name, extra, classes in (("new", [], 5), ("all", [], 10), ("new", uniform, 5)):
        done = run(*evaluate, *BASE[:3], name, *WORDS, *extra, name=f"{name}{len(extra)}", **CC)
        assert (done.status, done.results["classes"]) == (0, classes), done.output[-300:]


def test_checkpoints_of_other_code_bases_are_evaluated(run: Runner, shared_run: Runner, tmp_path: Path) -> None:
    """CoCoOp's own files hold the network in fp16."""
    ours = shared_run(*SHORT, **CC)
    state = checkpoints.load(ours.folder / "prompt_learner" / "model.pth.tar-2")["state_dict"]
    folder = tmp_path / "theirs" / "prompt_learner"
    folder.mkdir(parents=True)
    torch.save({"state_dict": {k: v.half() for k, v in state.items()}, "epoch": 10}, folder / "model.pth.tar-10")
    loaded = run("--eval-only", "--model-dir", str(tmp_path / "theirs"), "--load-epoch", "10", *SHORT, name="l", **CC)
    assert loaded.status == 0, loaded.output[-500:]
    assert loaded.results["metrics"]["accuracy"] == pytest.approx(ours.results["metrics"]["accuracy"], abs=5.1)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
def test_parameters_are_saved_in_fp32(run: Runner, precision: str) -> None:
    done = run(*SHORT, "OPTIM.MAX_EPOCH", "1", "TRAINER.COCOOP.PREC", precision, **CC)
    assert done.status == 0, done.output[-500:]
    state = checkpoints.load(done.folder / "prompt_learner" / "model.pth.tar-1")["state_dict"]
    assert {state[key].dtype for key in state if not key.startswith("token_")} == {torch.float32}


@pytest.mark.parametrize("trainer", ["KgCoOp", "ProGrad", "CoCoOp"])
def test_resumes_bit_exactly(run: Runner, monkeypatch: pytest.MonkeyPatch, trainer: str) -> None:
    """Also: the same seed gives the same result, another seed another."""
    from cocoamix.trainers.coop import CoOp

    settings = [*BASE, "OPTIM.MAX_EPOCH", "3"]
    whole, other = run(*settings, name="whole", trainer=trainer), run(*settings, name="s2", trainer=trainer, seed="2")
    original = CoOp.before_epoch

    def stop(self: CoOp) -> None:
        if self.epoch == 2:
            raise KeyboardInterrupt
        original(self)

    with monkeypatch.context() as patch:
        patch.setattr(CoOp, "before_epoch", stop)
        assert run(*settings, name="stopped", trainer=trainer).status == 130
    resumed = run(*settings, name="stopped", trainer=trainer)
    assert "2 of 3 epochs are done" in resumed.output
    ends = [
        checkpoints.load(done.folder / "prompt_learner" / "model.pth.tar-3")["state_dict"]
        for done in (whole, resumed, other)
    ]
    for key, value in ends[0].items():
        assert torch.equal(value, ends[1][key]), key
    assert not torch.equal(ends[0]["ctx"], ends[2]["ctx"])
    assert whole.results["metrics"] == resumed.results["metrics"]


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
