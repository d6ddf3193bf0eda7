"""KgCoOp, and what it shares with CoOp: hand-crafted prompt, uniform ensemble, checkpoints of other projects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from cocoamix.clip.templates import dataset_template
from cocoamix.io import checkpoints
from tests.conftest import CLASSES, Run, Runner
from tests.trainers.test_coop import BASE, NEW, context

KG = {"trainer": "KgCoOp"}
SHORT = ["OPTIM.MAX_EPOCH", "2"]


def build(folder: Path, data: Path, trainer: str, *options: str) -> Any:
    """Return a built trainer."""
    from dassl.engine import build_trainer

    import train
    from tests.conftest import command

    arguments = command(data, folder / f"built-{trainer}", folder / "tiny.yaml", *options, trainer=trainer)
    return build_trainer(train.setup_cfg(train.parse_arguments(arguments)))


def test_weight_zero_matches_coop(run: Runner) -> None:
    coop = run(*BASE, name="coop")
    zero = run(*BASE, "TRAINER.COOP.W", "0.0", name="zero", **KG)
    held = run(*BASE, "TRAINER.COOP.W", "8.0", name="held", **KG)
    assert torch.equal(context(coop.folder), context(zero.folder))
    assert not torch.equal(context(coop.folder), context(held.folder))
    assert coop.results["metrics"] == zero.results["metrics"]


def test_loss_matches_manual_calculation(tmp_path: Path, data_root: Path, tiny_config: Path) -> None:
    trainer = build(tmp_path, data_root, "KgCoOp", *BASE, "TRAINER.COOP.W", "3.0")
    features = torch.nn.functional.normalize(torch.randn(6, 128), dim=-1)
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    terms, logits = trainer.compute_loss(features, labels)
    written = trainer.clip.encode_texts([f"a centered satellite photo of {name}." for name in CLASSES[:5]])
    learned = trainer.text_features()
    apart = 1 - torch.stack([one @ other for one, other in zip(learned, written, strict=True)]).mean()
    rows = torch.log_softmax(100 * features @ learned.t(), dim=1)
    fit = -rows[range(6), labels].mean()
    assert terms["loss"].item() == pytest.approx((fit + 3 * apart).item(), rel=1e-5)
    assert terms["kg"].item() == pytest.approx(apart.item(), rel=1e-4)
    torch.testing.assert_close(logits, 100 * features @ learned.t())


def test_a_large_weight_keeps_the_text_features_close(tmp_path: Path, data_root: Path, tiny_config: Path) -> None:
    trainer = build(tmp_path, data_root, "KgCoOp", *BASE, "TRAINER.COOP.W", "100.0")
    features, labels = torch.nn.functional.normalize(torch.randn(8, 128), dim=-1), torch.arange(8) % 5
    trainer.begin_training()  # type: ignore[attr-defined]
    trainer.epoch = trainer.batch_idx = 0
    trainer._optims["prompt_learner"].param_groups[0]["lr"] = 0.002
    distances = [trainer.take_step(features, labels)["kg"] for _ in range(25)]
    assert distances[-1] < 0.8 * distances[0]


def test_training_and_evaluation_on_all_subsets(run: Runner) -> None:
    """Training, resuming a finished run, and evaluation on base, new and all."""
    trained = run(*BASE, *SHORT, **KG)
    assert trained.status == 0, trained.output[-500:]
    assert trained.results["trained_parameters"] == 4 * 128
    assert trained.results["protocol"]["templates"] == ["a centered satellite photo of {}."]
    evaluate = ["--eval-only", "--model-dir", str(trained.folder)]
    again = run(*evaluate, *BASE, name="base", **KG)
    assert again.results["metrics"] == trained.results["metrics"]
    for name, classes in (("new", 5), ("all", 10)):
        done = run(*evaluate, *BASE[:3], name, name=name, **KG)
        assert (done.status, done.results["classes"]) == (0, classes)
    # The training template is used, whatever the evaluation's configuration says.
    other = run(*evaluate, *NEW, "TRAINER.COOP.TEMPLATE", "a {}.", name="other", **KG)
    assert "TEMPLATE is 'dataset' as in training" in other.output
    assert other.results["protocol"]["templates"] == ["a centered satellite photo of {}."]


@pytest.mark.parametrize("precision", ["fp16", "bf16", "amp"])
@pytest.mark.parametrize("trainer", ["KgCoOp", "ProGrad"])
def test_precisions_agree(run: Runner, shared_run: Runner, precision: str, trainer: str) -> None:
    exact = shared_run(*BASE, "TRAINER.COOP.PREC", "fp32", name="exact", trainer=trainer)
    rough = run(*BASE, "TRAINER.COOP.PREC", precision, name="rough", trainer=trainer)
    assert rough.status == 0, rough.output[-500:]
    assert context(rough.folder).dtype == torch.float32
    assert (context(rough.folder) - context(exact.folder)).norm() < 0.05 * context(exact.folder).norm()


def test_checkpoints_of_other_code_bases_are_evaluated(run: Runner, tmp_path: Path) -> None:
    """KgCoOp's own files contain unused parameters, and class-name embeddings in three parts."""
    ours = run(*BASE, *SHORT, **KG)
    state = dict(checkpoints.load(ours.folder / "prompt_learner" / "model.pth.tar-2")["state_dict"])
    dead = {"bias_vectors": torch.zeros(1, 128), "meta_net.linear1.weight": torch.zeros(8, 128)}
    state |= dead | {"token_midfix": state["token_suffix"][:, :2], "ctx": state["ctx"].half()}
    folder = tmp_path / "theirs" / "prompt_learner"
    folder.mkdir(parents=True)
    torch.save({"state_dict": state, "epoch": 100}, folder / "model.pth.tar-100")
    loaded = run(
        "--eval-only", "--model-dir", str(tmp_path / "theirs"), "--load-epoch", "100", *NEW, name="loaded", **KG
    )
    assert loaded.status == 0, loaded.output[-500:]
    assert "bias_vectors, meta_net.linear1.weight, not used here" in loaded.output


class TestUniformEnsemble:
    """The mean of the similarities of any trained prompt and of the hand-crafted one."""

    UNIFORM = ("TRAINER.COOP.ENSEMBLE", "uniform")

    def evaluate(self, run: Runner, model: Run, *extra: str, trainer: str = "CoOp", name: str = "uniform") -> Run:
        return run("--eval-only", "--model-dir", str(model.folder), *NEW, *extra, name=name, trainer=trainer)

    @pytest.mark.parametrize("trainer", ["CoOp", "KgCoOp", "ProGrad"])
    def test_ensemble_of_a_checkpoint_uses_the_template(self, run: Runner, trainer: str) -> None:
        trained = run(*BASE, *SHORT, trainer=trainer)
        alone = self.evaluate(run, trained, trainer=trainer, name="alone")
        mixed = self.evaluate(run, trained, *self.UNIFORM, trainer=trainer)
        assert (alone.status, mixed.status) == (0, 0), mixed.output[-500:]
        assert mixed.results["protocol"]["templates"] == ["a centered satellite photo of {}."]
        assert mixed.results["metrics"]["nll"] != alone.results["metrics"]["nll"]
        assert (alone.results["protocol"]["templates"] == []) == (trainer == "CoOp")

    def test_ensemble_matches_manual_calculation(self, tmp_path: Path, data_root: Path, tiny_config: Path) -> None:
        trainer = build(tmp_path, data_root, "CoOp", *BASE, *self.UNIFORM, "TRAINER.COOP.TEMPLATE", "a {}.")
        features = torch.nn.functional.normalize(torch.randn(6, 128), dim=-1)
        with torch.no_grad():
            trainer.before_test()
            mixed = trainer.model_inference(features)
            written = trainer.clip.encode_texts([f"a {name}." for name in CLASSES[:5]])
            mean = (trainer.text_features() + written) / 2
        torch.testing.assert_close(mixed, 100 * features @ mean.t(), atol=1e-4, rtol=1e-5)

    def test_ensemble_of_the_template_is_zero_shot_clip(self, run: Runner) -> None:
        """With a context that still has the template's words, the ensemble is zero-shot CLIP."""
        frozen = ["OPTIM.LR", "0.0", "OPTIM.WARMUP_CONS_LR", "0.0", "OPTIM.WEIGHT_DECAY", "0.0"]
        words = ["TRAINER.COOP.CTX_INIT", "a centered satellite photo of", *self.UNIFORM]
        mixed = run(*BASE, *frozen, *words, "OPTIM.MAX_EPOCH", "1")
        plain = run("--eval-only", *BASE, trainer="ZeroshotCLIP", name="plain")
        assert mixed.results["metrics"] == plain.results["metrics"]

    def test_learned_weights_are_refused_for_coop(self, run: Runner) -> None:
        done = run(*BASE, "TRAINER.COOP.ENSEMBLE", "coa")
        assert done.status == 2
        assert "none" in done.output
        assert "uniform" in done.output


TEMPLATES = ["a photo", "a {0} {}", "a {x} {}", "{} {", "{{}}", "{!r}", "{:>5} {}", "[]", "['a {}.', 3]"]


@pytest.mark.parametrize(
    ("key", "value"), [("TRAINER.COOP.W", "-1.0"), *(("TRAINER.COOP.TEMPLATE", one) for one in TEMPLATES)]
)
def test_invalid_values_are_refused(run: Runner, key: str, value: str) -> None:
    done = run(*BASE, key, value, **KG)
    assert done.status == 2
    assert f"error: {key} " in done.output


def test_the_name_alone_is_a_template(tmp_path: Path, data_root: Path, tiny_config: Path) -> None:
    assert build(tmp_path, data_root, "KgCoOp", *BASE, "TRAINER.COOP.TEMPLATE", "{}").templates() == ["{}"]


@pytest.mark.parametrize("trainer", ["KgCoOp", "ProGrad"])
def test_the_method_has_its_own_template(
    tmp_path: Path, data_root: Path, tiny_config: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    from cocoamix.clip import templates

    monkeypatch.setitem(templates.VARIANTS[trainer], "EuroSAT", "a drawing of {}.")
    built = build(tmp_path, data_root, trainer, *BASE)
    assert built.templates() == ["a drawing of {}."]
    wanted = built.clip.encode_texts([f"a drawing of {one}." for one in CLASSES[:5]])
    torch.testing.assert_close(built.hand_crafted_features(), wanted)
    assert build(tmp_path, data_root, "CoOp", *BASE, "TRAINER.COOP.ENSEMBLE", "uniform").templates() == [
        "a centered satellite photo of {}."
    ]


def test_methods_have_their_own_templates() -> None:
    assert dataset_template("DescribableTextures") == "{} texture."
    assert dataset_template("DescribableTextures", "KgCoOp") == "a photo of a {}, a type of texture."
    assert dataset_template("OxfordPets", "KgCoOp") == dataset_template("OxfordPets")
    assert dataset_template("OxfordPets", "ProGrad") == "a type of pet, a photo of a {}."
    assert dataset_template("ImageNet", "ProGrad") == "a photo of a {}."
