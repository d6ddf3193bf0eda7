"""DePT: its loss recomputed, its limits, and full runs on base, new and all classes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from cocoamix.clip import FrozenCLIP
from cocoamix.clip.backbones import BACKBONES
from cocoamix.io import checkpoints
from cocoamix.prompts.channel_head import ChannelHead
from tests.conftest import Run, Runner

SHOTS = ["DATASET.NUM_SHOTS", "4"]
BASE = [*SHOTS, "DATASET.SUBSAMPLE_CLASSES", "base"]
FOUR = ["TRAINER.DEPT.N_CTX", "4"]


def state(done: Run, model: str, epoch: int = 4) -> dict[str, Tensor]:
    assert done.status == 0, done.output[-800:]
    return checkpoints.load(done.folder / model / f"model.pth.tar-{epoch}")["state_dict"]  # type: ignore[no-any-return]


def losses(done: Run) -> list[str]:
    return re.findall(r"loss ([\d.]+) ", done.output)


def trainer_of(run: Runner, monkeypatch: pytest.MonkeyPatch, *settings: str, trainer: str = "DePT") -> object:
    """Return the trainer of a run stopped before its first step."""
    from dassl.engine import TRAINER_REGISTRY

    kept: list[object] = []

    def keep(self: object) -> None:
        kept.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(TRAINER_REGISTRY.get(trainer), "train", keep)
        assert run(*BASE, *settings, trainer=trainer, name="kept").status == 0
    return kept[0]


@pytest.mark.parametrize(("below", "trainer"), [("CoOp", "DePT"), ("KgCoOp", "DePTKgCoOp")])
@pytest.mark.parametrize("cache", ["off", "all"])
def test_weight_zero_matches_the_base_method_bit_exactly(
    run: Runner, cache: str, below: str, trainer: str, tmp_path: Path
) -> None:
    mode = ["CACHE.MODE", cache, "CACHE.DIR", str(tmp_path / "store")]
    base = run(*BASE, *mode, "TRAINER.COOP.W", "2.0", trainer=below, name="base")
    dept = run(*BASE, *mode, *FOUR, "TRAINER.DEPT.WEIGHT", "0.0", trainer=trainer, name="dept")
    assert losses(base) == losses(dept) != []
    assert torch.equal(state(base, "prompt_learner")["ctx"], state(dept, "PromptLearner")["ctx"])
    assert base.results["metrics"] == dept.results["metrics"]


def test_loss_matches_its_formula(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(run, monkeypatch, *FOUR)
    clip, head = trainer.clip, trainer.head  # type: ignore[attr-defined]
    with torch.no_grad():
        for number, parameter in enumerate(head.parameters()):
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
    images = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(9))
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    features = clip.visual(images)
    texts = clip.text(trainer.prompt_learner())  # type: ignore[attr-defined]
    scores = 100 * F.normalize(features, dim=-1) @ F.normalize(texts, dim=-1).t()
    total = 0.3 * F.cross_entropy(scores, labels)
    rows = []
    for text, image in zip(texts[labels], features, strict=True):
        for x, affine in ((text, head.text), (image, head.image)):
            rows.append(head.head.weight @ (affine.scale * x + affine.shift) + head.head.bias)
    total = total + 0.7 * F.cross_entropy(torch.stack(rows), labels.repeat_interleave(2))
    terms, logits = trainer.compute_loss(trainer.encode(images), labels)  # type: ignore[attr-defined]
    torch.testing.assert_close(terms["loss"], total, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, 0.3 * scores + 0.7 * torch.stack(rows[1::2]), rtol=1e-3, atol=1e-3)


def test_raw_features_are_stored(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raw features have a separate store; cold, warm or off, a run is bit-identical."""
    store = ["CACHE.DIR", str(tmp_path / "store")]
    encode, sizes = FrozenCLIP.encode_image_raw, []

    def counting(self: FrozenCLIP, images: Tensor) -> Tensor:
        sizes.append(len(images))
        return encode(self, images)

    monkeypatch.setattr(FrozenCLIP, "encode_image_raw", counting)
    unit = run(*BASE, *store, name="unit")
    off = run(*BASE, *FOUR, "CACHE.MODE", "off", trainer="DePT", name="off")
    sizes.clear()
    cold = run(*BASE, *FOUR, *store, trainer="DePT", name="cold")
    assert sizes, "stored unit vectors must not be used"
    sizes.clear()
    warm = run(*BASE, *FOUR, *store, trainer="DePT", name="warm")
    assert sizes == []
    for done in (cold, warm):
        for model in ("PromptLearner", "channel_head"):
            wanted, found = state(off, model), state(done, model)
            assert all(torch.equal(wanted[key], found[key]) for key in wanted)
        assert done.results["metrics"] == off.results["metrics"]
    assert torch.equal(
        state(unit, "prompt_learner")["ctx"], state(run(*BASE, *store, name="again"), "prompt_learner")["ctx"]
    )
    assert len(list((tmp_path / "store").iterdir())) == 4, "two transforms, raw and unit"


def test_only_base_classes_use_the_fused_head(run: Runner) -> None:
    trained = run(*BASE, *FOUR, "OPTIM.LR", "0.005", "OPTIM.MAX_EPOCH", "8", trainer="DePT", name="base")
    assert "Logits: similarity and head" in trained.output
    values = [float(x) for x in re.findall(r"loss [\d.]+ \(([\d.]+)\)", trained.output)]
    assert sum(values[-3:]) < sum(values[:3])
    assert trained.results["trained_parameters"] == 4 * 128 + 4 * 128 + 129 * 5
    for subset in ("base", "new", "all"):
        where = ["--eval-only", "--model-dir", str(trained.folder), "--load-epoch", "8"]
        evaluate = [*where, "DATASET.SUBSAMPLE_CLASSES", subset]
        done = run(*evaluate, *SHOTS, *FOUR, trainer="DePT", name=f"{subset}-again")
        assert done.status == 0, done.output[-800:]
        if subset == "base":
            assert done.results["metrics"] == trained.results["metrics"]
        else:
            assert "similarity alone" in done.output
            # Which is what CoOp computes from the same context.
            Path(trained.folder, "prompt_learner").mkdir(exist_ok=True)
            content = checkpoints.load(trained.folder / "PromptLearner" / "model.pth.tar-8")
            content["cocoamix"]["trainer"] = "CoOp"
            checkpoints.save(trained.folder / "prompt_learner" / "model.pth.tar-8", content)
            coop = run(*evaluate, *SHOTS, name=f"{subset}-coop")
            assert coop.results["metrics"]["accuracy"] == done.results["metrics"]["accuracy"]


def test_the_head_is_sliced_by_name(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """An evaluation on some of the trained classes, reordered, uses their rows; an unknown class disables that."""
    trainer = trainer_of(run, monkeypatch, *FOUR)
    trainer.trained_classes = trained = list(trainer.classnames)  # type: ignore[attr-defined]
    trainer.trained_epochs = 1  # type: ignore[attr-defined]
    chosen = [trained[3], trained[0].upper().replace(" ", "_")]
    monkeypatch.setattr(trainer.dm.dataset, "_classnames", chosen)  # type: ignore[attr-defined]
    trainer.prompt_learner = trainer.make_learner()  # type: ignore[attr-defined]
    with torch.no_grad():
        trainer.before_test()  # type: ignore[attr-defined]
        images = torch.randn(2, 3, 32, 32)
        raw = trainer.clip.encode_image_raw(images)  # type: ignore[attr-defined]
        fused = trainer.model_inference(images)  # type: ignore[attr-defined]
        similar = trainer.logits(F.normalize(raw, dim=-1), trainer.text_features())  # type: ignore[attr-defined]
    wanted = 0.3 * similar + 0.7 * trainer.head.of_images(raw)[:, [3, 0]]  # type: ignore[attr-defined]
    torch.testing.assert_close(fused, wanted)
    monkeypatch.setattr(trainer.dm.dataset, "_classnames", [*chosen[:1], "a new one"])  # type: ignore[attr-defined]
    trainer.prompt_learner = trainer.make_learner()  # type: ignore[attr-defined]
    with torch.no_grad():
        trainer.before_test()  # type: ignore[attr-defined]
    assert trainer._rows is None  # type: ignore[attr-defined]
    # A head whose size differs from the number of known class names has no rows to choose.
    monkeypatch.setattr(trainer.dm.dataset, "_classnames", chosen)  # type: ignore[attr-defined]
    trainer.prompt_learner = trainer.make_learner()  # type: ignore[attr-defined]
    trainer.head.resize(7)  # type: ignore[attr-defined]
    with torch.no_grad():
        trainer.before_test()  # type: ignore[attr-defined]
    assert trainer._rows is None  # type: ignore[attr-defined]


SYNSETS = {"n02123045": "cat", "n03773504": "missile", "n04008634": "missile", "n04285008": "sports car"}


def write_imagenet(root: Path) -> Path:
    """Write a small ImageNet in which two classes share a name; ImageNet-R has only the first of them."""
    names = "".join(f"{synset} {name}\n" for synset, name in SYNSETS.items())
    for folder, synsets in {
        "imagenet/images/train": list(SYNSETS),
        "imagenet/images/val": list(SYNSETS),
        "imagenet-rendition/imagenet-r": ["n02123045", "n03773504"],
    }.items():
        (root / folder.split("/")[0]).mkdir(parents=True, exist_ok=True)
        (root / folder.split("/")[0] / "classnames.txt").write_text(names)
        for number, synset in enumerate(synsets):
            (root / folder / synset).mkdir(parents=True)
            for index in range(4):
                colour = (60 * number, 50 * index, 200 - 40 * number)
                Image.new("RGB", (40, 36), colour).save(root / folder / synset / f"{synset}_{index}.JPEG")
    return root


def test_classes_with_equal_names_are_distinguished(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLIP calls two classes of ImageNet "missile": the class's folder determines the row of the head."""
    from cocoamix.trainers.dept import DePT

    root = write_imagenet(tmp_path / "imagenets")
    shots = ["DATASET.NUM_SHOTS", "2"]
    trained = run("DATASET.NAME", "ImageNet", *shots, *FOUR, trainer="DePT", name="trained", data=root)
    assert "Logits: similarity and head" in trained.output, trained.output[-500:]
    content = checkpoints.load(trained.folder / "channel_head" / "model.pth.tar-4")
    assert content["cocoamix"]["synsets"] == list(SYNSETS)
    rows: list[list[int] | None] = []
    test = DePT.before_test

    def keeping(self: DePT) -> None:
        test(self)
        rows.append(None if self._rows is None else self._rows.tolist())

    monkeypatch.setattr(DePT, "before_test", keeping)
    evaluate = ["--eval-only", "--model-dir", str(trained.folder), "DATASET.NAME", "ImageNetR", *FOUR]
    assert run(*evaluate, trainer="DePT", name="r", data=root).status == 0
    assert rows == [[0, 1]]
    # No guess is made for a checkpoint that does not record the folders.
    for model in ("PromptLearner", "channel_head"):
        content = checkpoints.load(trained.folder / model / "model.pth.tar-4")
        del content["cocoamix"]["synsets"]
        checkpoints.save(trained.folder / model / "model.pth.tar-4", content)
    blind = run(*evaluate, trainer="DePT", name="blind", data=root)
    assert "similarity alone: 'missile' could be more than one of the trained classes" in blind.output
    assert rows[1:] == [None]


def test_an_untrained_head_is_not_used(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example when a training is tested before its first epoch; --eval-only needs a checkpoint."""
    dept: Any = trainer_of(run, monkeypatch, *FOUR)
    coop: Any = trainer_of(run, monkeypatch, trainer="CoOp")
    assert dept.test("val") == coop.test("val")
    assert dept._rows is None


def test_dept_can_be_combined_with_kgcoop(run: Runner) -> None:
    """The distance to the hand-crafted prompt is part of the loss below, and new classes need the template again."""
    trained = run(*BASE, *FOUR, trainer="DePTKgCoOp", name="base")
    assert trained.status == 0, trained.output[-800:]
    numbers = re.findall(
        r"loss ([\d.]+) .* ce ([\d.]+) .* kg ([\d.]+) .* base ([\d.]+) .* head ([\d.]+) ", trained.output
    )
    assert numbers
    for total, fit, distance, below, head in (map(float, row) for row in numbers):
        assert below == pytest.approx(fit + 2 * distance, abs=3e-4)
        assert total == pytest.approx(0.3 * below + 0.7 * head, abs=3e-4)
    for subset in ("base", "new", "all"):
        evaluate = ["--eval-only", "--model-dir", str(trained.folder), "DATASET.SUBSAMPLE_CLASSES", subset]
        done = run(*evaluate, *SHOTS, *FOUR, trainer="DePTKgCoOp", name=f"{subset}-again")
        assert done.status == 0, done.output[-800:]


def test_uniform_ensemble_averages_the_logits(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(run, monkeypatch, *FOUR, "TRAINER.DEPT.ENSEMBLE", "uniform")
    trainer.trained_epochs = 1  # type: ignore[attr-defined]
    raw = torch.randn(3, 128, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        trainer.before_test()  # type: ignore[attr-defined]
        text = trainer.hand_crafted_features()  # type: ignore[attr-defined]
        hand_crafted = trainer.logits(F.normalize(raw, dim=-1), text)  # type: ignore[attr-defined]
        wanted = (trainer.class_logits(raw) + hand_crafted) / 2  # type: ignore[attr-defined]
        torch.testing.assert_close(trainer.model_inference(raw), wanted)  # type: ignore[attr-defined]


def test_stopped_run_resumes_identically(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.trainers.test_resume import stopping_at

    whole = run(*BASE, *FOUR, trainer="DePT", name="whole")
    with monkeypatch.context() as patch:
        stopping_at(2, patch)
        assert run(*BASE, *FOUR, trainer="DePT", name="stopped").status == 130
    other = run(*BASE, *FOUR, "TRAINER.DEPT.WEIGHT", "0.5", trainer="DePT", name="stopped")
    assert (other.status, "DEPT.WEIGHT was 0.7 and is 0.5" in other.output) == (2, True)
    resumed = run(*BASE, *FOUR, trainer="DePT", name="stopped")
    for model in ("PromptLearner", "channel_head"):
        wanted, found = state(whole, model), state(resumed, model)
        assert all(torch.equal(wanted[key], found[key]) for key in wanted)
    rates = {
        model: checkpoints.load(whole.folder / model / "model.pth.tar-4")["optimizer"]["param_groups"][0]["initial_lr"]
        for model in ("PromptLearner", "channel_head")
    }
    assert rates["channel_head"] == pytest.approx(6.5 * rates["PromptLearner"])


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
def test_precisions_agree(run: Runner, shared_run: Runner, precision: str) -> None:
    exact = shared_run(*BASE, *FOUR, trainer="DePT", name="exact")
    rough = run(*BASE, *FOUR, "TRAINER.DEPT.PREC", precision, trainer="DePT", name="rough")
    start = ChannelHead(128, 5).state_dict()
    for key in ("image.scale", "text.shift"):
        wanted = state(exact, "channel_head")[key]
        moved = (wanted - start[key]).norm()
        assert (state(rough, "channel_head")[key] - wanted).norm() < 0.1 * moved


def test_parameters_at_true_size() -> None:
    sizes = BACKBONES["ViT-B/16"].sizes
    head = ChannelHead(sizes.embedding, 500)
    context = 16 * sizes.text_width
    count = context + sum(p.numel() for p in head.parameters())
    assert count == 16 * 512 + 2 * (512 + 512) + 500 * 512 + 500 == 266_740


def test_invalid_weight_is_refused(run: Runner) -> None:
    done = run(*BASE, "TRAINER.DEPT.WEIGHT", "1.5", trainer="DePT")
    assert (done.status, "TRAINER.DEPT.WEIGHT is 1.5" in done.output) == (2, True)
