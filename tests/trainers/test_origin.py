"""Evaluating a checkpoint as what it is: under its own trainer and the settings that it was trained with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cocoamix.io import checkpoints
from tests.conftest import Run, Runner
from tests.trainers.test_coop import BASE, NEW

SHORT = [*BASE, "OPTIM.MAX_EPOCH", "1"]
DEEP = "TRAINER.MAPLE.PROMPT_DEPTH"


def forget(done: Run, folder: str = "prompt_learner", **more: Tensor) -> Run:
    """Make the checkpoint of a run one that does not tell of its origin, as those of the public trees."""
    assert done.status == 0, done.output[-500:]
    path = done.folder / folder / "model.pth.tar-1"
    content = checkpoints.load(path)
    torch.save({"state_dict": {**content["state_dict"], **more}, "epoch": 1}, path)
    return done


def evaluate(run: Runner, model: Run, *extra: str, trainer: str, name: str = "evaluated") -> Run:
    return run("--eval-only", "--model-dir", str(model.folder), *NEW, *extra, trainer=trainer, name=name)


class TestAnotherTrainers:
    @pytest.mark.parametrize("trainer", ["CoOp", "KgCoOp", "ProGrad", "CoCoAMix"])
    def test_network_of_cocoop(self, run: Runner, trainer: str) -> None:
        """A context is half of what CoCoOp trains."""
        model = forget(run(*SHORT, "TRAINER.COCOOP.N_CTX", "4", trainer="CoCoOp"))
        alone = ["TRAINER.COCOAMIX.N_CTX", "4", "TRAINER.COCOAMIX.ENSEMBLE", "none"]
        done = evaluate(run, model, *alone, trainer=trainer)
        assert done.status == 2
        assert "also holds meta_net.linear1.bias, meta_net.linear1.weight" in done.output

    def test_context_of_coop_under_cocoop(self, run: Runner) -> None:
        done = evaluate(run, forget(run(*SHORT)), "TRAINER.COCOOP.N_CTX", "4", trainer="CoCoOp")
        assert (done.status, "lacks meta_net.linear1.bias" in done.output) == (2, True)

    def test_dead_network_under_cocoop(self, run: Runner) -> None:
        """KgCoOp's own files have a network that was never trained; it is not CoCoOp's."""
        trained = run(*SHORT, "TRAINER.COCOOP.N_CTX", "4", trainer="CoCoOp")
        done = evaluate(
            run, forget(trained, bias_vectors=torch.ones(1, 128)), "TRAINER.COCOOP.N_CTX", "4", trainer="CoCoOp"
        )
        assert (done.status, "also holds bias_vectors" in done.output) == (2, True)

    @pytest.mark.parametrize("trainer", ["CoOp", "KgCoOp"])
    def test_dead_network_under_coop(self, run: Runner, trainer: str) -> None:
        dead = {"bias_vectors": torch.ones(1, 128), "meta_net.linear1.weight": torch.ones(8, 128)}
        done = evaluate(run, forget(run(*SHORT, trainer="KgCoOp"), **dead), trainer=trainer)
        assert (done.status, "bias_vectors, meta_net.linear1.weight, not used here" in done.output) == (0, True)

    def test_by_name(self, run: Runner) -> None:
        """A context of CoOp's fits ProGrad, but the result is not ProGrad's."""
        trained = run(*SHORT)
        done = evaluate(run, trained, trainer="ProGrad")
        assert (done.status, "was trained by CoOp, but this run's trainer is ProGrad" in done.output) == (2, True)
        prefixed = evaluate(run, trained, trainer="cocoamix.CoOp", name="prefixed")
        assert prefixed.status == 0, prefixed.output[-500:]
        start = ["MODEL.INIT_WEIGHTS", str(trained.folder / "prompt_learner" / "model.pth.tar-1")]
        assert run(*SHORT, *start, trainer="ProGrad", name="started").status == 0


class TestMaPLe:
    def test_deeper_than_the_evaluation(self, run: Runner) -> None:
        model = forget(run(*SHORT, DEEP, "3", trainer="MaPLe"), "MultiModalPromptLearner")
        done = evaluate(run, model, DEEP, "2", trainer="MaPLe")
        assert done.status == 2
        assert "also holds prompt_learner.compound_prompt_projections.1.bias" in done.output
        assert "PROMPT_DEPTH" in done.output

    def test_the_towers_are_dead(self, run: Runner) -> None:
        towers = {"image_encoder.a": torch.ones(1), "text_encoder.b": torch.ones(1), "logit_scale": torch.ones(1)}
        model = run(*SHORT, DEEP, "2", trainer="MaPLe")
        done = evaluate(run, forget(model, "MultiModalPromptLearner", **towers), DEEP, "2", trainer="MaPLe")
        assert (done.status, "image_encoder.a, logit_scale, text_encoder.b, not used" in done.output) == (0, True)


def outputs(monkeypatch: pytest.MonkeyPatch, trainer: str) -> list[Tensor]:
    """Return the list to which every evaluation adds its logits of some pictures."""
    from dassl.engine import TRAINER_REGISTRY

    kind = TRAINER_REGISTRY.get(trainer)
    kept: list[Tensor] = []
    test = kind.test
    pictures = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))

    def keeping(self: object, *arguments: object) -> float:
        accuracy: float = test(self, *arguments)
        with torch.no_grad():
            kept.append(self.model_inference(pictures))  # type: ignore[attr-defined]
        return accuracy

    monkeypatch.setattr(kind, "test", keeping)
    return kept


POSITION = ("CLASS_TOKEN_POSITION", "front", "end")
TEMPLATE = ("TEMPLATE", "a drawing of a {}.", "a {}.")


@pytest.mark.parametrize(
    ("trainer", "section", "setting", "more"),
    [
        ("CoOp", "COOP", POSITION, []),
        ("KgCoOp", "COOP", POSITION, []),
        ("KgCoOp", "COOP", TEMPLATE, ["TRAINER.COOP.ENSEMBLE", "uniform"]),
        ("ProGrad", "COOP", POSITION, []),
        ("ProGrad", "COOP", TEMPLATE, ["TRAINER.COOP.ENSEMBLE", "uniform"]),
        ("MaPLe", "MAPLE", ("CTX_INIT", "a drawing of the", "a photo of a"), [DEEP, "2"]),
        ("DePT", "DEPT", ("WEIGHT", "0.2", "0.7"), []),
        ("DePT", "DEPT", POSITION, []),
        ("DePTKgCoOp", "DEPT", ("WEIGHT", "0.2", "0.7"), []),
        ("DePTKgCoOp", "DEPT", POSITION, []),
        ("DePTKgCoOp", "DEPT", TEMPLATE, ["TRAINER.DEPT.ENSEMBLE", "uniform"]),
        ("CoCoAMix", "COCOAMIX", POSITION, []),
    ],
)
def test_settings_of_training_hold(
    run: Runner,
    monkeypatch: pytest.MonkeyPatch,
    trainer: str,
    section: str,
    setting: tuple[str, str, str],
    more: list[str],
) -> None:
    """An evaluation that names another value, or none, is the one with training's own, and says so."""
    key, value, other = setting
    key = f"TRAINER.{section}.{key}"
    shown = outputs(monkeypatch, trainer)
    trained = run(*SHORT, *more, key, value, trainer=trainer)
    assert trained.status == 0, trained.output[-500:]
    where = ["--eval-only", "--model-dir", str(trained.folder), *BASE, *more]
    silent = run(*where, trainer=trainer, name="silent")
    differing = run(*where, key, other, trainer=trainer, name="differing")
    for done, logits in zip((silent, differing), shown[1:], strict=True):
        assert torch.equal(logits, shown[0]), done.output[-500:]
        assert f"{setting[0]} is {_value(value)!r} as in training" in done.output
    assert f"the configuration's {_value(other)!r} is not used" in differing.output
    # Where nothing is told of the training, the configuration counts.
    folders = [path.parent.name for path in trained.folder.glob("*/model.pth.tar-1")]
    for folder in folders:
        forget(trained, folder)
    blind = run(*where, key, other, trainer=trainer, name="blind")
    assert blind.status == 0, blind.output[-500:]
    assert "as in training" not in blind.output
    assert not torch.equal(shown[3], shown[0])


def _value(text: str) -> str | float:
    return float(text) if text[0].isdigit() else text


def test_the_template_of_an_ensemble_is_the_evaluations(run: Runner, tmp_path: Path) -> None:
    """CoOp trains without one, so that the uniform ensemble may take any."""
    trained = run(*SHORT)
    chosen = ["TRAINER.COOP.ENSEMBLE", "uniform", "TRAINER.COOP.TEMPLATE", "a {}."]
    done = evaluate(run, trained, *chosen, trainer="CoOp")
    assert done.results["protocol"]["templates"] == ["a {}."]
    assert "as in training" not in done.output


class TestAnotherActivation:
    """The same weights run with another activation are another model."""

    OPEN = ("MODEL.BACKBONE.SOURCE", "open_clip")  # which has both
    GELU = (*OPEN, "MODEL.BACKBONE.ACTIVATION", "gelu")

    def test_a_checkpoint(self, run: Runner) -> None:
        model = run(*SHORT, *self.OPEN, trainer="CoOp")
        done = evaluate(run, model, *self.GELU, trainer="CoOp")
        assert done.status == 2
        assert "was trained on tiny with activation quick_gelu, but this run uses tiny with gelu" in done.output

    def test_sessions(self, run: Runner) -> None:
        cut = ["FSCIL.BASE", "8", "FSCIL.WAY", "2", "FSCIL.SHOTS", "1", "FSCIL.LAST_SESSION", "0"]
        model = run(*cut, *self.OPEN, "OPTIM.MAX_EPOCH", "1", trainer="CoOpFSCIL")
        assert model.status == 0, model.output[-500:]
        evaluated = ["--eval-only", "--model-dir", str(model.folder), *cut, *self.GELU]
        done = run(*evaluated, trainer="CoOpFSCIL", name="evaluated")
        assert done.status == 2
        assert "its activation is 'quick_gelu', and this run's is 'gelu'" in done.output
