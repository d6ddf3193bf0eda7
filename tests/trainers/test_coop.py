"""CoOp and zero-shot CLIP end to end, through train.py, on a generated dataset."""

from __future__ import annotations

import json
import re

import pytest
import torch

from cocoamix.io import checkpoints
from tests.conftest import Runner

BASE = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base"]
NEW = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "new"]


def context(folder: object, epoch: int = 4) -> torch.Tensor:
    return checkpoints.load(f"{folder}/prompt_learner/model.pth.tar-{epoch}")["state_dict"]["ctx"]  # type: ignore[no-any-return]


def test_train_on_base_then_evaluate_on_new(run: Runner, shared_run: Runner) -> None:
    trained = shared_run(*BASE)
    assert trained.status == 0
    assert (trained.folder / "prompt_learner" / "checkpoint").read_text() == "model.pth.tar-4\n"
    content = checkpoints.load(trained.folder / "prompt_learner" / "model.pth.tar-4")
    assert {"state_dict", "epoch", "optimizer", "scheduler", "val_result"} <= set(content)
    assert set(content["state_dict"]) == {"ctx", "token_prefix", "token_suffix"}
    assert content["epoch"] == 4
    log = (trained.folder / "log.txt").read_text()
    assert "Finish training" in log
    assert re.search(r"^epoch \[4/4\] batch \[2/2\] time .* data .* loss .* acc .* lr .* eta 0:00:00$", log, re.M)
    accuracy = re.findall(r"\* accuracy: ([\d.]+)%", log)
    assert float(accuracy[-1]) == pytest.approx(trained.results["metrics"]["accuracy"], abs=0.005)

    evaluated = run("--eval-only", "--model-dir", str(trained.folder), "--load-epoch", "4", *NEW, name="new")
    assert evaluated.status == 0
    results = evaluated.results
    assert (results["subset"], results["classes"], results["epoch"]) == ("new", 5, 4)
    assert results["evaluated_images"] == 20
    assert results["fingerprint"] != trained.results["fingerprint"]  # other classes
    # Without --load-epoch the newest is used, with a note.
    newest = run("--eval-only", "--model-dir", str(trained.folder), *NEW, name="newest")
    assert newest.results["metrics"] == results["metrics"]
    # The same evaluation on base reproduces the training run's number, in another process state.
    again = run("--eval-only", "--model-dir", str(trained.folder), *BASE, name="base")
    assert again.results["metrics"] == trained.results["metrics"]
    assert again.results["fingerprint"] == trained.results["fingerprint"]


def test_training_lowers_the_loss(run: Runner) -> None:
    output = run(*BASE, "OPTIM.MAX_EPOCH", "12").output
    losses = [float(x) for x in re.findall(r"loss [\d.]+ \(([\d.]+)\)", output)]
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])


@pytest.mark.parametrize("trainer", ["ZeroshotCLIP", "ZeroshotCLIP2"])
def test_zero_shot_clip_is_evaluated_but_not_trained(run: Runner, trainer: str) -> None:
    base = run("--eval-only", *BASE, trainer=trainer, name="base")
    both = run("--eval-only", trainer=trainer, name="all")
    assert (base.status, both.status) == (0, 0)
    assert (base.results["classes"], both.results["classes"]) == (5, 10)
    assert base.results["trained_parameters"] == 0
    assert len(base.results["protocol"]["templates"]) == (1 if trainer == "ZeroshotCLIP" else 8)
    trained = run(trainer=trainer, name="trained")
    assert trained.status == 2
    assert "nothing to train" in trained.output


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "amp"])
def test_precisions_agree(run: Runner, shared_run: Runner, precision: str) -> None:
    """Every precision trains on a CPU, keeps the context in fp32 and ends near the fp32 context."""
    exact = shared_run(*BASE, "TRAINER.COOP.PREC", "fp32", name="exact")
    rough = run(*BASE, "TRAINER.COOP.PREC", precision, name="rough")
    assert rough.status == 0, rough.output[-500:]
    assert rough.results["protocol"]["precision"] == precision
    assert context(rough.folder).dtype == torch.float32
    frozen = ["OPTIM.LR", "0.0", "OPTIM.WARMUP_CONS_LR", "0.0", "OPTIM.WEIGHT_DECAY", "0.0"]
    start = shared_run(*BASE, *frozen, name="start")
    moved = (context(exact.folder) - context(start.folder)).norm()
    assert moved > 1e-4
    assert (context(rough.folder) - context(exact.folder)).norm() < 0.1 * moved


def test_learning_rates_of_the_standard_recipe(run: Runner) -> None:
    """The ten rates of the standard recipe."""
    output = run(*BASE, "OPTIM.LR", "0.002", "OPTIM.MAX_EPOCH", "10").output
    seen = [float(rate) for rate in re.findall(r"batch \[1/2\].* lr (\S+)", output)]
    wanted = [1e-5, 0.002, 0.001951, 0.001809, 0.001588, 0.001309, 0.001, 0.000691, 0.000412, 0.000191]
    assert seen == pytest.approx(wanted, abs=5e-7)


def test_seed_zero_is_reproducible(run: Runner) -> None:
    one, two, other = (run(*BASE, name=name, seed=seed) for name, seed in (("a", "0"), ("b", "0"), ("c", "2")))
    assert one.results["seed"] == 0
    assert torch.equal(context(one.folder), context(two.folder))
    assert not torch.equal(context(one.folder), context(other.folder))


def test_number_of_workers_does_not_change_results(run: Runner, shared_run: Runner) -> None:
    alone = shared_run(*BASE, name="alone")
    helped = run(*BASE, "DATALOADER.NUM_WORKERS", "3", name="helped")
    assert torch.equal(context(alone.folder), context(helped.folder))
    assert alone.results["metrics"] == helped.results["metrics"]


def test_best_model_on_validation_is_evaluated(run: Runner) -> None:
    done = run(*BASE, "TEST.FINAL_MODEL", "best_val")
    assert done.status == 0
    best = checkpoints.load(done.folder / "prompt_learner" / "model-best.pth.tar")
    assert best["val_result"] > 0
    assert done.results["epoch"] == best["epoch"]


def test_checkpoints_are_saved_at_the_given_frequency(run: Runner) -> None:
    folder = run(*BASE, "TRAIN.CHECKPOINT_FREQ", "2").folder / "prompt_learner"
    assert {path.name for path in folder.iterdir()} == {"checkpoint", "model.pth.tar-2", "model.pth.tar-4"}


@pytest.mark.parametrize("position", ["end", "middle", "front"])
@pytest.mark.parametrize("class_specific", ["True", "False"])
def test_only_shared_contexts_transfer_to_new_classes(run: Runner, position: str, class_specific: str) -> None:
    settings = ["TRAINER.COOP.CLASS_TOKEN_POSITION", position, "TRAINER.COOP.CSC", class_specific]
    done = run(*BASE, *settings, "OPTIM.MAX_EPOCH", "2")
    assert done.status == 0
    assert context(done.folder, 2).dim() == (3 if class_specific == "True" else 2)
    moved = run("--eval-only", "--model-dir", str(done.folder), *NEW, *settings, name="new")
    if class_specific == "True":
        assert moved.status == 2
        assert "class-specific" in moved.output
    else:
        assert moved.status == 0


@pytest.mark.parametrize(
    ("value", "words"), [("True", "a photo of a"), ("False", "X X X X"), ("satellite", "satellite")]
)
def test_context_init_may_be_text_or_boolean(run: Runner, value: str, words: str) -> None:
    """CTX_INIT is a string in CoOp and a boolean in some of its descendants."""
    assert f'Initial context: "{words}"' in run(*BASE, "TRAINER.COOP.CTX_INIT", value, "OPTIM.MAX_EPOCH", "1").log


def test_initial_weights_are_loaded(run: Runner, shared_run: Runner) -> None:
    first = shared_run(*BASE, name="first")
    path = first.folder / "prompt_learner" / "model.pth.tar-4"
    frozen = ["OPTIM.LR", "0.0", "OPTIM.WARMUP_CONS_LR", "0.0", "OPTIM.WEIGHT_DECAY", "0.0"]
    second = run(*BASE, "MODEL.INIT_WEIGHTS", str(path), *frozen, name="second", seed="2")
    assert torch.equal(context(first.folder), context(second.folder))


def test_fingerprint_covers_settings_that_change_results(run: Runner) -> None:
    def fingerprint(*settings: str) -> str:
        return str(
            run("--eval-only", *settings, trainer="ZeroshotCLIP", name="-".join(settings) or "plain").results[
                "fingerprint"
            ]
        )

    plain = fingerprint()
    source = ("MODEL.BACKBONE.SOURCE", "open_clip")
    assert plain == fingerprint("DATALOADER.NUM_WORKERS", "1")
    assert plain == fingerprint("DATALOADER.TEST.BATCH_SIZE", "7")
    assert fingerprint(*source) != fingerprint(*source, "MODEL.BACKBONE.ACTIVATION", "gelu")
    assert plain != fingerprint("INPUT.RRCROP_SCALE", "(0.9, 1.0)")
    assert plain != fingerprint("INPUT.INTERPOLATION", "bilinear")
    assert plain != fingerprint("DATASET.SUBSAMPLE_CLASSES", "new")


def test_ensemble_of_eighty_templates(run: Runner) -> None:
    done = run("--eval-only", "TRAINER.ZEROSHOT.ENSEMBLE", "80", trainer="ZeroshotCLIP2")
    assert len(done.results["protocol"]["templates"]) == 81
    assert run("--eval-only", "TRAINER.ZEROSHOT.ENSEMBLE", "9", trainer="ZeroshotCLIP2", name="bad").status == 2


def test_results_of_another_evaluation_are_kept(run: Runner, shared_run: Runner) -> None:
    trained = shared_run(*BASE)
    run("--eval-only", "--model-dir", str(trained.folder), *NEW)
    kept = [json.loads(path.read_text())["subset"] for path in sorted(trained.folder.glob("results.json*"))]
    assert kept == ["new", "base"]


def test_a_trainer_may_register_its_own_optimizer(
    run: Runner, shared_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CoOp-style trainers do, with Dassl's own method."""
    from dassl.optim import build_optimizer

    from cocoamix.run.schedules import build_schedule
    from cocoamix.trainers.coop import CoOp

    def register(self: CoOp, name: str, model: torch.nn.Module, optim: object) -> None:
        optimizer = build_optimizer(model, optim)
        self.register_model(name, model, optimizer, build_schedule(optimizer, optim))

    whole = shared_run(*BASE)
    monkeypatch.setattr(CoOp, "register", register)
    own = run(*BASE, name="own")
    assert own.status == 0
    assert torch.equal(context(own.folder), context(whole.folder))


STAGED = ["OPTIM.STAGED_LR", "True", "OPTIM.NEW_LAYERS", "['linear_probe','film']", "OPTIM.BASE_LR_MULT"]


def test_staged_rates_train_the_context(run: Runner, shared_run: Runner) -> None:
    """As DePT's train.py sets them, where all of Dassl's own groups are empty."""
    plain, staged = shared_run(*BASE), run(*BASE, *STAGED, "1.0", name="staged")
    assert staged.status == 0
    assert "OPTIM.STAGED_LR is True: 512 parameters of prompt_learner learn at 0.02" in staged.output
    assert torch.equal(context(staged.folder), context(plain.folder))
    assert staged.results["fingerprint"] != plain.results["fingerprint"]
    slower = run(*BASE, *STAGED, "0.5", name="slower")
    assert not torch.equal(context(slower.folder), context(plain.folder))
    assert slower.results["fingerprint"] != staged.results["fingerprint"]
    # An evaluation reports the rates that the checkpoint was trained with.
    again = run("--eval-only", "--model-dir", str(staged.folder), *BASE, name="again")
    assert again.results["fingerprint"] == staged.results["fingerprint"]
    other = run("--eval-only", "--model-dir", str(plain.folder), *BASE, *STAGED, "0.5", name="other")
    assert other.results["fingerprint"] == plain.results["fingerprint"]


def test_a_checkpoint_of_empty_groups_is_refused(run: Runner) -> None:
    """As an earlier version wrote it under Dassl: with the setting, but without the rates in the protocol."""
    trained = run(*BASE, *STAGED, "1.0")
    path = trained.folder / "prompt_learner" / "model.pth.tar-4"
    content = checkpoints.load(path)
    del content["cocoamix"]["protocol"]["staged_lr"]
    checkpoints.save(path, content)
    loaded = run("--eval-only", "--model-dir", str(trained.folder), *BASE, *STAGED, "1.0", name="again")
    assert loaded.status == 2
    assert "trained with OPTIM.STAGED_LR True, but does not record its learning rates" in loaded.output


@pytest.mark.parametrize("fault", ["left out", "idle"])
def test_training_without_any_update_is_refused(run: Runner, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    from cocoamix.run import optimisation

    class Idle(torch.optim.SGD):
        def step(self, *_: object) -> None:  # type: ignore[override]
            pass

    def build(model: torch.nn.Module, optim: object) -> torch.optim.Optimizer:
        if fault == "left out":
            return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.02)
        return Idle(model.parameters(), lr=0.02)

    monkeypatch.setattr(optimisation, "build_optimizer", build)
    done = run(*BASE)
    assert done.status == 2
    wanted = (
        "prompt_learner.ctx would not be trained" if fault == "left out" else "prompt_learner did not change in epoch 1"
    )
    assert wanted in done.output
    assert not (done.folder / "results.json").exists()
    assert not list(done.folder.glob("prompt_learner/model*"))
