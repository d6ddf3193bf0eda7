"""T_En: the mixture and its losses, the prompts that it takes from other runs, and full runs."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.backbones import BACKBONES
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.prompts.conditional import ConditionalPromptLearner
from cocoamix.prompts.context import PromptLearner
from cocoamix.prompts.sample_weighting import make_generator, mix_probabilities, mixture_loss
from tests.conftest import Run, Runner

SHOTS = ["DATASET.NUM_SHOTS", "4"]
BASE = [*SHOTS, "DATASET.SUBSAMPLE_CLASSES", "base"]
TWO = ["TRAINER.ENLEARN.BACKBONES", "['tiny', 'tiny']", "TRAINER.ENLEARN.BACKBONE_WEIGHTS", "['', 'random']"]


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(math.prod(shape)))


def test_equal_weights_are_the_mean_of_probabilities() -> None:
    logits = 5 * draw(4, 6, 7)
    mean = torch.stack([one.softmax(dim=-1) for one in logits]).mean(dim=0)
    torch.testing.assert_close(mix_probabilities(torch.zeros(6, 4), logits).exp(), mean)
    one_hot = torch.tensor([50.0, -50.0, -50.0, -50.0]).expand(6, -1)
    torch.testing.assert_close(mix_probabilities(one_hot, logits).exp(), logits[0].softmax(dim=-1))


def test_losses_match_their_formulas() -> None:
    logits, scores, labels = 4 * draw(4, 6, 50), draw(6, 4), torch.arange(6)
    weights = scores.softmax(dim=-1)
    output = sum(weights[:, k, None] * logits[k].softmax(dim=-1) for k in range(4)) / 4
    mixture = mix_probabilities(scores, logits)
    torch.testing.assert_close(mixture_loss("ce", mixture, labels, 4), F.cross_entropy(output, labels))
    wanted = -(4 * output[torch.arange(6), labels]).log().mean()
    torch.testing.assert_close(mixture_loss("nll", mixture, labels, 4), wanted)


def test_original_loss_has_a_narrow_range() -> None:
    """For 50 classes and 4 models: from 3.912, where the label has no weight, to 3.668, where it has all."""
    sure = torch.full((1, 50), -100.0)
    sure[0, 0] = 0.0
    assert float(mixture_loss("ce", sure, torch.tensor([0]), 4)) == pytest.approx(3.668, abs=1e-3)
    assert float(mixture_loss("ce", torch.full((1, 50), -math.log(50)), torch.tensor([0]), 4)) == pytest.approx(
        3.912, abs=1e-3
    )


def test_parameters_at_true_size() -> None:
    channels = sum(BACKBONES[name].sizes.embedding for name in ("RN50", "RN101", "ViT-B/32", "ViT-B/16"))
    count = sum(p.numel() for p in make_generator(channels, 4).parameters())
    assert count == 2560 * 80 + 80 + 80 * 4 + 4 == 205_204  # the paper's figure


def state(done: Run, epoch: int = 4) -> dict[str, Tensor]:
    assert done.status == 0, done.output[-800:]
    content = checkpoints.load(done.folder / "learn_module" / f"model.pth.tar-{epoch}")
    return content["state_dict"]  # type: ignore[no-any-return]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("loss", ["ce", "nll"])
def test_trains_resumes_and_transfers_to_new_classes(run: Runner, monkeypatch: pytest.MonkeyPatch, loss: str) -> None:
    from cocoamix.trainers.tune_en import TuneEn

    settings = [*TWO, "TRAINER.ENLEARN.LOSS", loss, "OPTIM.MAX_EPOCH", "6", "OPTIM.LR", "0.5"]  # its gradients are tiny
    whole = run(*BASE, *settings, trainer="TuneEn", name="whole")
    assert set(state(whole, 6)) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    values = [float(x) for x in re.findall(r"loss [\d.]+ \(([\d.]+)\)", whole.output)]
    assert sum(values[-3:]) < sum(values[:3])
    assert whole.results["trained_parameters"] == 256 * 8 + 8 + 8 * 2 + 2
    before_epoch = TuneEn.before_epoch

    def stop(self: TuneEn) -> None:
        if self.epoch == 3:
            raise KeyboardInterrupt
        before_epoch(self)

    with monkeypatch.context() as patch:
        patch.setattr(TuneEn, "before_epoch", stop)
        assert run(*BASE, *settings, trainer="TuneEn", name="stopped").status == 130
    resumed = run(*BASE, *settings, trainer="TuneEn", name="stopped")
    assert same(state(whole, 6), state(resumed, 6))
    off = run(*BASE, *settings, "CACHE.MODE", "off", trainer="TuneEn", name="off")
    assert same(state(whole, 6), state(off, 6))
    assert off.results["metrics"] == whole.results["metrics"]
    for subset in ("base", "new", "all"):
        evaluate = ["--eval-only", "--model-dir", str(whole.folder), *SHOTS, "DATASET.SUBSAMPLE_CLASSES", subset]
        done = run(*evaluate, *settings, trainer="TuneEn", name=subset)
        assert done.status == 0, done.output[-800:]
        if subset == "base":
            assert done.results["metrics"] == whole.results["metrics"]


def test_zero_generator_gives_the_mean_of_the_models(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole path of an evaluation, against the two models separately."""
    from cocoamix.trainers.tune_en import TuneEn

    trainers: list[TuneEn] = []
    monkeypatch.setattr(TuneEn, "train", lambda self: trainers.append(self))
    run(*BASE, *TWO, trainer="TuneEn")
    (trainer,) = trainers
    for parameter in trainer.generator.parameters():
        torch.nn.init.zeros_(parameter)
    images = draw(5, 3, 32, 32)
    shares = []
    for weights in ("", "random"):
        clip = load_clip("tiny", weights, precision="fp32")
        texts = clip.encode_classes(trainer.classnames, ["a centered satellite photo of {}."])
        shares.append((clip.logit_scale * clip.encode_image(images) @ texts.t()).softmax(dim=-1))
    with torch.no_grad():
        found = trainer.model_inference(images).exp()
    torch.testing.assert_close(found, torch.stack(shares).mean(dim=0), atol=1e-5, rtol=1e-4)
    assert trainer.templates() == ["a centered satellite photo of {}."]


def test_prompts_are_taken_from_other_runs(run: Runner) -> None:
    """One run of CoCoA-Mix with CoA-loss on both models, or a run for each; the evaluation finds them again."""
    plain = [word.replace("ENLEARN", "COCOAMIX") for word in TWO]
    both = run(*BASE, *plain, "TRAINER.COCOAMIX.N_CTX", "4", "TRAINER.COCOAMIX.ENSEMBLE", "none", trainer="CoCoAMix")
    assert both.status == 0, both.output[-800:]
    alone = [run(*BASE, "MODEL.BACKBONE.WEIGHTS", weights, name=f"coop-{weights}").folder for weights in ("", "random")]
    metrics = []
    for number, folders in enumerate(([both.folder], alone)):
        prompts = ["TRAINER.ENLEARN.PROMPTS", str([str(folder) for folder in folders])]
        done = run(*BASE, *TWO, *prompts, trainer="TuneEn", name=f"tuned{number}")
        assert done.status == 0, done.output[-800:]
        assert done.results["protocol"]["templates"] == []
        assert done.results["protocol"]["prompts"] == ["4 learned vectors"] * 2
        again = run(
            "--eval-only", "--model-dir", str(done.folder), *BASE, *TWO, trainer="TuneEn", name=f"again{number}"
        )
        assert again.results["metrics"] == done.results["metrics"]
        assert again.results["fingerprint"] == done.results["fingerprint"]
        metrics.append(state(done)["0.weight"])
    assert not torch.equal(*metrics)
    swapped = ["TRAINER.ENLEARN.PROMPTS", str([str(folder) for folder in reversed(alone)])]
    wrong = run(*BASE, *TWO, *swapped, trainer="TuneEn", name="wrong")
    assert (wrong.status, "are not those of tiny in this run" in wrong.output) == (2, True)


def test_prompts_of_cocoop_depend_on_the_image(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """With runs of CoCoOp, each model's text features depend on the image, as in CoCoOp."""
    from cocoamix.trainers.cocoop import CoCoOp
    from cocoamix.trainers.tune_en import TuneEn

    short = [*BASE, "OPTIM.MAX_EPOCH", "2"]
    folders, shares, images = [], [], draw(3, 3, 32, 32)
    for weights in ("", "random"):
        trainers: list[CoCoOp] = []
        test = CoCoOp.test
        with monkeypatch.context() as patch:
            patch.setattr(CoCoOp, "test", lambda self, *args, kept=trainers, test=test: kept.append(self) or test(self))
            done = run(
                *short,
                "TRAINER.COCOOP.N_CTX",
                "4",
                "MODEL.BACKBONE.WEIGHTS",
                weights,
                trainer="CoCoOp",
                name=f"c{weights}",
            )
        folders.append(str(done.folder))
        with torch.no_grad():
            shares.append(trainers[0].model_inference(images).softmax(dim=-1))
    ensembles: list[TuneEn] = []
    monkeypatch.setattr(TuneEn, "test", lambda self: ensembles.append(self))
    done = run(*short, *TWO, "TRAINER.ENLEARN.PROMPTS", str(folders), trainer="TuneEn")
    assert done.status == 0, done.output[-800:]
    for parameter in ensembles[0].generator.parameters():
        torch.nn.init.zeros_(parameter)
    with torch.no_grad():
        found = ensembles[0].model_inference(images).exp()
    torch.testing.assert_close(found, torch.stack(shares).mean(dim=0), atol=1e-5, rtol=1e-4)


def test_imagenet_has_seven_templates(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven on ImageNet and its variants, whatever prefix the dataset is registered with."""
    from cocoamix.clip.templates import IMAGENET_7
    from cocoamix.trainers.tune_en import TuneEn

    trainers: list[TuneEn] = []
    monkeypatch.setattr(TuneEn, "train", lambda self: trainers.append(self))
    run(*BASE, *TWO, trainer="TuneEn")
    (trainer,) = trainers
    trainer.cfg = trainer.cfg.clone()
    trainer.cfg.defrost()
    for name in ("ImageNet", "ImageNetV2", "ImageNetSketch", "ImageNetA", "ImageNetR", "Caltech101"):
        for prefix in ("", "cocoamix."):
            trainer.cfg.DATASET.NAME = prefix + name
            seven = list(trainer.templates()) == list(IMAGENET_7)
            assert seven == name.startswith("ImageNet"), (prefix, name)


class TestReadingPrompts:
    """What turns a checkpoint back into the prompt that was trained."""

    def folder(self, tmp_path: Path, origin: dict[str, object], **state: Tensor) -> str:
        path = tmp_path / "run" / "prompt_learner" / "model.pth.tar-1"
        content = {"state_dict": {"ctx": draw(4, 128), **state}, "epoch": 1, "cocoamix": origin}
        checkpoints.save(path, content)
        checkpoints.point_to(path)
        return str(tmp_path / "run")

    def read(self, clip: FrozenCLIP, folder: str, number: int | None = None) -> PromptLearner:
        from cocoamix.run.trained_prompt import read_prompt

        return read_prompt(clip, ["river", "sea or lake"], folder, clip.weights_hash, number)

    def test_unused_network_is_ignored(self, tmp_path: Path, tiny_clip: FrozenCLIP) -> None:
        """KgCoOp's files contain CoCoOp's network but never use it."""
        network = ConditionalPromptLearner(tiny_clip, ["river"], n_ctx=4).state_dict()
        network = {key: value for key, value in network.items() if key.startswith("meta_net")}
        alive = self.read(tiny_clip, self.folder(tmp_path, {}, **network))
        dead = self.read(tiny_clip, self.folder(tmp_path, {}, **network, bias_vectors=draw(1, 128)))
        assert isinstance(alive, ConditionalPromptLearner)
        assert not isinstance(dead, ConditionalPromptLearner)
        assert torch.equal(dead.ctx, draw(4, 128))

    @pytest.mark.parametrize("position", ["end", "middle", "front"])
    def test_position_of_the_class_name_is_read(self, tmp_path: Path, tiny_clip: FrozenCLIP, position: str) -> None:
        origin = {"settings": {"TRAINER.COOP.CLASS_TOKEN_POSITION": position}}
        found = self.read(tiny_clip, self.folder(tmp_path, origin))
        wanted = PromptLearner(tiny_clip, ["river", "sea or lake"], n_ctx=4, position=position)
        wanted.ctx.data = draw(4, 128)
        assert torch.equal(tiny_clip.encode_prompts(found()), tiny_clip.encode_prompts(wanted()))

    def test_unusable_prompts_are_refused(self, tmp_path: Path, tiny_clip: FrozenCLIP) -> None:
        specific = self.folder(tmp_path, {}, ctx=draw(2, 4, 128))
        with pytest.raises(UserError, match="class-specific contexts"):
            self.read(tiny_clip, specific)
        other = self.folder(tmp_path, {"weights_sha256": "0" * 64, "backbone": "RN50"})
        with pytest.raises(UserError, match="was trained on RN50 with weights 0000000000000000, which are not those"):
            self.read(tiny_clip, other)
        with pytest.raises(UserError, match="holds no context number 2, for tiny"):
            self.read(tiny_clip, self.folder(tmp_path, {}), 1)


def test_changed_prompts_prevent_a_resume(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run resumes only with its original prompts, and an evaluation reports if they differ."""
    from cocoamix.trainers.tune_en import TuneEn

    short = [*BASE, "OPTIM.MAX_EPOCH", "2"]
    first = [run(*short, "MODEL.BACKBONE.WEIGHTS", weights, name=f"p-{weights}").folder for weights in ("", "random")]
    settings = [*short, *TWO, "TRAINER.ENLEARN.PROMPTS", str([str(folder) for folder in first])]
    whole = run(*settings, trainer="TuneEn", name="whole")
    before_epoch = TuneEn.before_epoch

    def stop(self: TuneEn) -> None:
        if self.epoch == 1:
            raise KeyboardInterrupt
        before_epoch(self)

    with monkeypatch.context() as patch:
        patch.setattr(TuneEn, "before_epoch", stop)
        assert run(*settings, trainer="TuneEn", name="stopped").status == 130
    where = ["--eval-only", "--model-dir", str(whole.folder), *short, *TWO]
    same_again = run(*where, trainer="TuneEn", name="same")
    assert "PROMPTS is [" in same_again.output
    assert "not the prompts of training" not in same_again.output
    path = first[0] / "prompt_learner" / "model.pth.tar-2"
    kept = path.read_bytes()
    content = checkpoints.load(path)
    content["state_dict"]["ctx"] += 0.01
    checkpoints.save(path, content)
    refused = run(*settings, trainer="TuneEn", name="stopped")
    assert (refused.status, "content of TRAINER.ENLEARN.PROMPTS was" in refused.output) == (2, True)
    assert "not the prompts of training" in run(*where, trainer="TuneEn", name="others").output
    path.write_bytes(kept)
    resumed = run(*settings, trainer="TuneEn", name="stopped")
    assert same(state(whole, 2), state(resumed, 2))
    # The hash is not part of the fingerprint, which decides whether seeds of a method are averaged.
    other = run(*settings, trainer="TuneEn", name="seed2", seed="2")
    assert other.results["fingerprint"] == whole.results["fingerprint"]


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
def test_precisions_agree(run: Runner, shared_run: Runner, precision: str) -> None:
    exact = state(shared_run(*BASE, *TWO, trainer="TuneEn", name="exact"))
    rough = state(run(*BASE, *TWO, "TRAINER.ENLEARN.PREC", precision, trainer="TuneEn", name="rough"))
    assert (exact["0.weight"] - rough["0.weight"]).norm() < 0.01 * exact["0.weight"].norm()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["TRAINER.ENLEARN.BACKBONES", "['tiny']"], "at least two"),
        (["TRAINER.ENLEARN.BACKBONES", "['tiny', 3]"], "TRAINER.ENLEARN.BACKBONES holds 3"),
        ([*TWO[:2], "TRAINER.ENLEARN.BACKBONE_WEIGHTS", "[1, 2]"], "TRAINER.ENLEARN.BACKBONE_WEIGHTS holds 1"),
        ([*TWO, "TRAINER.ENLEARN.PROMPTS", "[1, 2]"], "TRAINER.ENLEARN.PROMPTS holds 1"),
        ([*TWO, "TRAINER.ENLEARN.NUM_WEIGHT", "4"], "NUM_WEIGHT is 4"),
        ([*TWO, "TRAINER.ENLEARN.WEIGHTS_SEARCH", "True"], "ENLEARN.WEIGHTS_SEARCH is True, but TuneEn learns"),
        ([*TWO, "TRAINER.ENLEARN.SEARCH_EVAL", "True"], "ENLEARN.SEARCH_EVAL is True"),
        ([*TWO, "TRAINER.ENLEARN.WEIGHT_RN50", "0.3"], "ENLEARN.WEIGHT_RN50 is 0.3"),
        ([*TWO, "TRAINER.ENLEARN.WEIGHT_RN101", "0.3"], "ENLEARN.WEIGHT_RN101 is 0.3"),
        ([*TWO, "TRAINER.ENLEARN.WEIGHT_VIT32", "0.3"], "ENLEARN.WEIGHT_VIT32 is 0.3"),
        ([*TWO, "TRAINER.ENLEARN.WEIGHT_VIT16", "0.3"], "ENLEARN.WEIGHT_VIT16 is 0.3"),
        ([*TWO, "TRAINER.ENLEARN.MODEL_DIR", "output"], "use TRAINER.ENLEARN.PROMPTS"),
        ([*TWO, "TRAINER.ENLEARN.LOSS", "mse"], "Known: ce, nll"),
        ([*TWO, "TRAINER.ENLEARN.PROMPTS", "['a', 'b', 'c']"], "names 3 runs"),
        (
            [*TWO, "TRAINER.ENLEARN.PROMPTS", "['nowhere']"],
            "in nowhere/prompt_learner: the folder does not exist. TRAINER.ENLEARN.PROMPTS names",
        ),
    ],
)
def test_invalid_settings_are_refused(run: Runner, settings: list[str], message: str) -> None:
    done = run(*BASE, *settings, trainer="TuneEn")
    assert (done.status, message in done.output) == (2, True), done.output[-300:]
