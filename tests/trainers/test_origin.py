"""Checkpoints are evaluated under their own trainer, with the settings that they were trained with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cocoamix.config.settings import flatten
from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.run.origin import origin_of
from tests.conftest import Run, Runner
from tests.trainers.test_coop import BASE, NEW

SHORT = [*BASE, "OPTIM.MAX_EPOCH", "1"]
DEEP = "TRAINER.MAPLE.PROMPT_DEPTH"


def strip_origin(done: Run, folder: str = "prompt_learner", **more: Tensor) -> Run:
    """Remove the record of its origin from a run's checkpoint, as in checkpoints of the public trees."""
    assert done.status == 0, done.output[-500:]
    path = done.folder / folder / "model.pth.tar-1"
    content = checkpoints.load(path)
    torch.save({"state_dict": {**content["state_dict"], **more}, "epoch": 1}, path)
    return done


def evaluate(run: Runner, model: Run, *extra: str, trainer: str, name: str = "evaluated") -> Run:
    return run("--eval-only", "--model-dir", str(model.folder), *NEW, *extra, trainer=trainer, name=name)


class TestCheckpointsOfOtherTrainers:
    @pytest.mark.parametrize("trainer", ["CoOp", "KgCoOp", "ProGrad", "CoCoAMix"])
    def test_network_of_cocoop_is_refused(self, run: Runner, shared_run: Runner, trainer: str) -> None:
        """A context is only half of what CoCoOp trains."""
        model = strip_origin(shared_run(*SHORT, "TRAINER.COCOOP.N_CTX", "4", trainer="CoCoOp"))
        alone = ["TRAINER.COCOAMIX.N_CTX", "4", "TRAINER.COCOAMIX.ENSEMBLE", "none"]
        done = evaluate(run, model, *alone, trainer=trainer)
        assert done.status == 2
        assert "also holds meta_net.linear1.bias, meta_net.linear1.weight" in done.output

    def test_cocoop_refuses_a_context_of_coop(self, run: Runner, shared_run: Runner) -> None:
        done = evaluate(run, strip_origin(shared_run(*SHORT)), "TRAINER.COCOOP.N_CTX", "4", trainer="CoCoOp")
        assert (done.status, "lacks meta_net.linear1.bias" in done.output) == (2, True)

    def test_cocoop_refuses_an_unused_network(self, run: Runner, shared_run: Runner) -> None:
        """KgCoOp's own files have a network that was never trained; it is not CoCoOp's."""
        trained = shared_run(*SHORT, "TRAINER.COCOOP.N_CTX", "4", trainer="CoCoOp")
        done = evaluate(
            run, strip_origin(trained, bias_vectors=torch.ones(1, 128)), "TRAINER.COCOOP.N_CTX", "4", trainer="CoCoOp"
        )
        assert (done.status, "also holds bias_vectors" in done.output) == (2, True)

    @pytest.mark.parametrize("trainer", ["CoOp", "KgCoOp"])
    def test_coop_ignores_an_unused_network(self, run: Runner, shared_run: Runner, trainer: str) -> None:
        dead = {"bias_vectors": torch.ones(1, 128), "meta_net.linear1.weight": torch.ones(8, 128)}
        done = evaluate(run, strip_origin(shared_run(*SHORT, trainer="KgCoOp"), **dead), trainer=trainer)
        assert (done.status, "bias_vectors, meta_net.linear1.weight, not used here" in done.output) == (0, True)

    def test_checkpoint_of_another_method_is_refused(self, run: Runner, shared_run: Runner) -> None:
        """A CoOp context fits ProGrad, but the result would not be ProGrad's."""
        trained = shared_run(*SHORT)
        done = evaluate(run, trained, trainer="ProGrad")
        assert (done.status, "was trained by CoOp, but this run's trainer is ProGrad" in done.output) == (2, True)
        prefixed = evaluate(run, trained, trainer="cocoamix.CoOp", name="prefixed")
        assert prefixed.status == 0, prefixed.output[-500:]
        start = ["MODEL.INIT_WEIGHTS", str(trained.folder / "prompt_learner" / "model.pth.tar-1")]
        assert run(*SHORT, *start, trainer="ProGrad", name="started").status == 0


class TestMaPLe:
    def test_deeper_checkpoint_is_refused(self, run: Runner) -> None:
        model = strip_origin(run(*SHORT, DEEP, "3", trainer="MaPLe"), "MultiModalPromptLearner")
        done = evaluate(run, model, DEEP, "2", trainer="MaPLe")
        assert done.status == 2
        assert "also holds prompt_learner.compound_prompt_projections.1.bias" in done.output
        assert "PROMPT_DEPTH" in done.output

    def test_checkpoint_towers_are_not_used(self, run: Runner) -> None:
        towers = {"image_encoder.a": torch.ones(1), "text_encoder.b": torch.ones(1), "logit_scale": torch.ones(1)}
        model = run(*SHORT, DEEP, "2", trainer="MaPLe")
        done = evaluate(run, strip_origin(model, "MultiModalPromptLearner", **towers), DEEP, "2", trainer="MaPLe")
        assert (done.status, "image_encoder.a, logit_scale, text_encoder.b, not used" in done.output) == (0, True)


def outputs(monkeypatch: pytest.MonkeyPatch, trainer: str) -> list[Tensor]:
    """Return a list to which every evaluation adds its logits of some images."""
    from dassl.engine import TRAINER_REGISTRY

    kind = TRAINER_REGISTRY.get(trainer)
    kept: list[Tensor] = []
    test = kind.test
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))

    def keeping(self: object, *arguments: object) -> float:
        accuracy: float = test(self, *arguments)
        with torch.no_grad():
            kept.append(self.model_inference(images))  # type: ignore[attr-defined]
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
def test_training_settings_take_precedence(
    run: Runner,
    monkeypatch: pytest.MonkeyPatch,
    trainer: str,
    section: str,
    setting: tuple[str, str, str],
    more: list[str],
) -> None:
    """An evaluation that sets another value, or none, uses that of the training, and says so."""
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
    # If the training is not recorded, the configuration is used.
    folders = [path.parent.name for path in trained.folder.glob("*/model.pth.tar-1")]
    for folder in folders:
        strip_origin(trained, folder)
    blind = run(*where, key, other, trainer=trainer, name="blind")
    assert blind.status == 0, blind.output[-500:]
    assert "as in training" not in blind.output
    assert not torch.equal(shown[3], shown[0])


def _value(text: str) -> str | float:
    return float(text) if text[0].isdigit() else text


def test_ensemble_template_is_chosen_by_the_evaluation(run: Runner, shared_run: Runner) -> None:
    """CoOp trains without one, so the uniform ensemble may use any."""
    trained = shared_run(*SHORT)
    chosen = ["TRAINER.COOP.ENSEMBLE", "uniform", "TRAINER.COOP.TEMPLATE", "a {}."]
    done = evaluate(run, trained, *chosen, trainer="CoOp")
    assert done.results["protocol"]["templates"] == ["a {}."]
    assert "as in training" not in done.output


class TestOtherActivation:
    """The same weights run with another activation are another model."""

    OPEN = ("MODEL.BACKBONE.SOURCE", "open_clip")  # which has both
    GELU = (*OPEN, "MODEL.BACKBONE.ACTIVATION", "gelu")

    def test_checkpoint_of_another_activation_is_refused(self, run: Runner) -> None:
        model = run(*SHORT, *self.OPEN, trainer="CoOp")
        done = evaluate(run, model, *self.GELU, trainer="CoOp")
        assert done.status == 2
        assert "was trained on tiny with activation quick_gelu, but this run uses tiny with gelu" in done.output

    def test_sessions_of_another_activation_are_refused(self, run: Runner) -> None:
        split = ["FSCIL.BASE", "8", "FSCIL.WAY", "2", "FSCIL.SHOTS", "1", "FSCIL.LAST_SESSION", "0"]
        model = run(*split, *self.OPEN, "OPTIM.MAX_EPOCH", "1", trainer="CoOpFSCIL")
        assert model.status == 0, model.output[-500:]
        evaluated = ["--eval-only", "--model-dir", str(model.folder), *split, *self.GELU]
        done = run(*evaluated, trainer="CoOpFSCIL", name="evaluated")
        assert done.status == 2
        assert "its activation is 'quick_gelu', but this run's is 'gelu'" in done.output


class TestRecord:
    """Results describe the training of the checkpoint, whatever the evaluation's configuration says."""

    @pytest.mark.parametrize(
        ("trainer", "settings", "size"),
        [
            ("CoOp", {"TRAINER.COOP.CTX_INIT": "a photo of a"}, "TRAINER.COOP.N_CTX"),
            ("KgCoOp", {"TRAINER.COOP.W": 2.0}, "TRAINER.COOP.N_CTX"),
            ("ProGrad", {"LOSS.LAMBDA": 0.5}, "TRAINER.COOP.N_CTX"),
            ("CoCoOp", {"TRAINER.COCOOP.CTX_INIT": "a photo of a"}, "TRAINER.COCOOP.N_CTX"),
            ("MaPLe", {"TRAINER.MAPLE.CTX_INIT": "a drawing of the"}, DEEP),
            ("DePT", {"TRAINER.DEPT.LR_FACTOR": 2.0}, "TRAINER.DEPT.N_CTX"),
            ("DePTKgCoOp", {"TRAINER.DEPT.W": 3.0}, "TRAINER.DEPT.N_CTX"),
            (
                "CoCoAMix",
                {"TRAINER.COCOAMIX.LOSS": "ce", "TRAINER.COCOAMIX.OUT_CLASSES": "string"},
                "TRAINER.COCOAMIX.N_CTX",
            ),
        ],
    )
    def test_evaluations_report_the_training_of_every_trainer(
        self, run: Runner, trainer: str, settings: dict[str, object], size: str
    ) -> None:
        shape = [size, "2" if size == DEEP else "4"]
        settings = {**settings, "OPTIM.MAX_EPOCH": 1, "OPTIM.LR": 0.01, "DATALOADER.TRAIN_X.BATCH_SIZE": 4}
        given = [str(part) for pair in settings.items() for part in pair]
        trained = run(*BASE, *shape, *given, trainer=trainer, name="base", seed="2")
        assert trained.status == 0, trained.output[-500:]
        model = ["--eval-only", "--model-dir", str(trained.folder)]
        shots = ["DATASET.NUM_SHOTS", "2", "DATASET.SUBSAMPLE_CLASSES"]
        done = run(*model, *shots, "new", *shape, trainer=trainer, name="new")
        assert done.status == 0, done.output[-500:]
        now, then = flatten(done.results["config"]), flatten(trained.results["config"])
        for key in (*settings, "SEED", "DATASET.NUM_SHOTS"):
            assert now[key] == then[key], key
        assert now["DATASET.SUBSAMPLE_CLASSES"] == "new"
        assert "OPTIM.MAX_EPOCH 1 (not 4)" in done.output
        for key in ("seed", "shots", "train_images", "epoch"):
            assert done.results[key] == trained.results[key], key
        for key in ("shots", "views", "model_selection"):
            assert done.results["protocol"][key] == trained.results["protocol"][key], key
        assert done.results["protocol"]["splits"]["train"] == trained.results["protocol"]["splits"]["train"]
        # On the training classes the evaluation is the same except for its time and the overridden settings.
        again = run(*model, *shots, "base", *shape, trainer=trainer, name="again").results
        kept, other = ({**one, "evaluation_seconds": 0, "config": 0} for one in (trained.results, again))
        given = {key: value for key, value in other.pop("overridden").items() if key in then}
        assert (given["SEED"], given["DATASET.NUM_SHOTS"], given["OPTIM.MAX_EPOCH"]) == (1, 2, 4)
        assert other == kept

    def test_evaluation_of_tune_en_reports_its_training(self, run: Runner) -> None:
        """Its prompts may differ in an evaluation; the runs that they come from are then the evaluation's own."""
        from tests.trainers.test_tune_en import TWO

        trained = run(*SHORT, *TWO, trainer="TuneEn", name="base")
        assert trained.status == 0, trained.output[-500:]
        done = evaluate(run, trained, *TWO, trainer="TuneEn")
        assert flatten(done.results["config"])["OPTIM.MAX_EPOCH"] == 1

    def test_training_and_evaluation_are_one_row(self, run: Runner, tmp_path: Path) -> None:
        """The scripts' test command does not repeat the options of the train command."""
        from cocoamix.experiments.frame import read
        from cocoamix.experiments.pivots import base_to_new

        place = "eurosat/shots_4/CoOp/tiny/seed1"
        trained = run(*SHORT, name=f"output/base2new/train_base/{place}")
        done = evaluate(run, trained, trainer="CoOp", name=f"output/base2new/test_new/{place}")
        assert (trained.status, done.status) == (0, 0), done.output[-500:]
        (line,) = base_to_new(read([tmp_path / "output"]).values).to_numpy()
        base, new = (one.results["metrics"]["accuracy"] for one in (trained, done))
        assert list(line) == pytest.approx([base, new, 2 * base * new / (base + new)])

    def test_model_selection_is_reported(self, run: Runner) -> None:
        best = ["TEST.FINAL_MODEL", "best_val"]
        trained = run(*SHORT, *best)
        assert trained.status == 0, trained.output[-500:]
        done = evaluate(run, trained, trainer="CoOp", name="best")
        assert done.results["protocol"]["model_selection"] == "best_val"
        assert done.results["config"]["TEST"]["FINAL_MODEL"] == "best_val"
        # An explicitly given epoch does not count as the best one, even if it is the same.
        last = run("--eval-only", "--model-dir", str(trained.folder), "--load-epoch", "1", *NEW, *best, name="last")
        assert last.results["protocol"]["model_selection"] == "last_step"

    def test_missing_record_is_noted(self, run: Runner, shared_run: Runner) -> None:
        trained = strip_origin(shared_run(*SHORT))
        done = evaluate(run, trained, "OPTIM.MAX_EPOCH", "9", trainer="CoOp")
        assert done.status == 0, done.output[-500:]
        assert done.results["config"]["OPTIM"]["MAX_EPOCH"] == 9
        assert (
            "does not record how it was trained: the results state the training settings of this configu" in done.output
        )

    def test_matching_settings_are_not_noted(self, run: Runner, shared_run: Runner) -> None:
        trained = shared_run(*SHORT)
        done = evaluate(run, trained, "OPTIM.MAX_EPOCH", "1", trainer="CoOp")
        assert "as in training" not in done.output
        assert "does not record how" not in done.output
        assert "overridden" not in done.results


class TestNoModel:
    """The accuracy of an untrained model is not a result of a method that trains."""

    @pytest.mark.parametrize(
        "trainer",
        ["CoOp", "KgCoOp", "ProGrad", "CoCoOp", "MaPLe", "DePT", "DePTKgCoOp", "CoCoAMix", "TuneEn"],
    )
    def test_untrained_model_is_refused(self, run: Runner, trainer: str) -> None:
        from tests.trainers.test_tune_en import TWO

        done = run("--eval-only", *BASE, DEEP, "2", *TWO, trainer=trainer)
        assert done.status == 2
        assert not (done.folder / "results.json").exists()
        (message,) = (line for line in done.output.splitlines() if line.startswith("error: "))
        assert message.startswith(
            f"error: --eval-only with {trainer} needs --model-dir, the output folder of a training run"
        )

    def test_zero_shot_clip_needs_no_model(self, run: Runner) -> None:
        done = run("--eval-only", *BASE, trainer="ZeroshotCLIP")
        assert (done.status, done.results["trained_parameters"]) == (0, 0)


@pytest.mark.parametrize("key", ["settings", "protocol", "seed", "classnames"])
def test_altered_origin_is_refused(key: str) -> None:
    """What results state about the training must not come from elsewhere."""
    path = Path("model.pth.tar-1")
    assert origin_of({"state_dict": {}}, path) == {}
    assert origin_of({"cocoamix": {}}, path) == {}
    with pytest.raises(UserError, match=f"model.pth.tar-1 does not record the {key} of its run"):
        origin_of({"cocoamix": {key: "x"}}, path)
