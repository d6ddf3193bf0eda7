"""The second stage of CoCoA-Mix: its length, its views, and weights fitted to held-out images."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.coa import heldout
from cocoamix.features import images
from cocoamix.features.reading import read_image
from cocoamix.run.checkpointer import RESUME
from cocoamix.trainer import CLIPTrainer
from tests.conftest import CLASSES, Run, Runner
from tests.faults.runs import outcome
from tests.methods.modules import learned, written
from tests.trainers.kinds import BASE, equal, evaluate, killed_at, state, watch_logits, watch_steps, watch_trainers

MIX = {"trainer": "CoCoAMix"}
FEW = [*BASE, "OPTIM.NAME", "adam", "OPTIM.LR", "0.002", "OPTIM.WARMUP_EPOCH", "0"]


def keys(**values: object) -> list[str]:
    return [part for key, value in values.items() for part in (f"TRAINER.COCOAMIX.{key}", str(value))]


TWO = keys(STAGE="two", N_CTX=2)
# Two epochs of the prompt and of each of four folds, then two of the weights.
HELD = [*FEW, *TWO, *keys(WEIGHT_FIT="heldout", WEIGHT_EPOCHS=2), "OPTIM.MAX_EPOCH", "2"]
LAST = 2 * 5 + 2
# Two folds, and a second stage of five steps an epoch that continues until the weights converge.
STILL = [*HELD, *keys(WEIGHT_EPOCHS=0, WEIGHT_TOLERANCE=0.02, WEIGHT_LR=0.02, MARGIN=0.02), "CACHE.VIEWS", "1"]
STILL += ["DATASET.NUM_SHOTS", "2", "DATALOADER.TRAIN_X.BATCH_SIZE", "2", "OPTIM.WEIGHT_DECAY", "0.0"]


def without_time(run: Run) -> dict[str, Any]:
    assert run.status == 0, run.output[-800:]
    return {key: value for key, value in run.results["heldout"].items() if key != "seconds"}


# ---------------------------------------------------------------------- length


def test_an_open_ended_stage_ends_by_itself_or_at_its_bound(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a constant rate, where twice as many epochs would end, too; and it encodes no image again."""
    one_step = ["DATALOADER.TRAIN_X.BATCH_SIZE", "32", "OPTIM.MAX_EPOCH", "2", "OPTIM.WEIGHT_DECAY", "0.0"]
    settings = [*FEW, *TWO, *one_step, "CACHE.VIEWS", "1", *keys(WEIGHT_LR=0.08, MARGIN=0.02, WEIGHT_TOLERANCE=0.004)]
    with monkeypatch.context() as patch:
        steps = watch_steps(patch)
        done = run(*settings, **MIX)
    stage = done.results["second_stage"]
    assert (stage["ended"], stage["steps"]) == ("converged", stage["epochs"])
    assert stage["moved"] < 0.004
    assert stage["epochs"] % 50 == 0
    assert f"converged after {stage['epochs']} epochs: pi moved by {stage['moved']:.6f}" in done.output
    assert done.results["epoch"] == 2 + stage["epochs"]
    assert {step.rates.get("coa_weights") for step in steps} == {None, 0.08}
    assert abs(stage["pi_in"] - 0.5) > 0.05
    inside = state(done, "coa_weights", done.results["epoch"])["inside"]
    assert float(inside.sigmoid()) == pytest.approx(stage["pi_in"])
    assert done.results["weights"] == {side: stage[side] for side in ("pi_in", "pi_out")}
    again = evaluate(run, done, *settings, name="again", **MIX)
    assert again.results["second_stage"] == stage

    views: list[int] = []
    before_epoch = CLIPTrainer.before_epoch

    def watched(self: Any) -> None:
        before_epoch(self)
        views.append(self.train_loader_x.dataset.view)

    monkeypatch.setattr(CLIPTrainer, "before_epoch", watched)
    bound = [*FEW, *TWO, *keys(WEIGHT_MAX_STEPS=12)]
    ended = run(*bound, name="bound", **MIX).results["second_stage"]
    assert (ended["epochs"], ended["steps"], ended["ended"]) == (6, 12, "bound")
    assert views == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    views.clear()
    known = run(*bound, *keys(WEIGHT_EPOCHS=2), name="known", **MIX)
    assert known.results["second_stage"]["ended"] == "length"
    assert views == [0, 1, 2, 3, 4, 5]


def test_killed_before_the_weights_converge_ends_identically(run: Runner) -> None:
    """In a fold, between the folds and the weights, within a round of 50 steps, and before the results."""
    whole = run(*STILL, name="whole", **MIX)
    stage, last = whole.results["second_stage"], whole.results["epoch"]
    assert stage["ended"] == "converged"
    assert last == 2 * 3 + stage["epochs"]
    assert stage["epochs"] >= 20  # two rounds
    for epoch in (3, 6, 9, last - 1):
        with killed_at(None, epoch):
            run(*STILL, name="killed", **MIX)
    killed = run(*STILL, name="killed", **MIX)
    assert f"{last - 1} of " in killed.output
    assert outcome(killed.folder) == outcome(whole.folder)
    assert killed.results["second_stage"] == stage
    assert without_time(killed) == without_time(whole)
    (killed.folder / RESUME).unlink()  # only the checkpoints record that it has ended
    alone = run(*STILL, name="killed", **MIX)
    assert f"{last} of {last} epochs are done" in alone.output
    assert alone.results["second_stage"] == stage


# ---------------------------------------------------------------------- folds


@pytest.mark.parametrize("epochs", ["0", "3"])
def test_checkpoints_alone_resume_every_stage(run: Runner, epochs: str) -> None:
    """Without a resume file, and again with the one that the second start has written."""
    settings = [*BASE, *keys(STAGE="two", WEIGHT_EPOCHS=epochs, WEIGHT_MAX_STEPS=30, WEIGHT_TOLERANCE=0.5)]
    done = run(*settings, trainer="CoCoAMix")
    assert done.status == 0, done.output[-800:]
    before = {path: path.read_bytes() for path in done.folder.rglob("model.pth.tar-*")}
    (done.folder / RESUME).unlink()
    for _ in range(2):
        again = run(*settings, trainer="CoCoAMix")
        assert again.status == 0, again.output[-800:]
        assert {path: path.read_bytes() for path in done.folder.rglob("model.pth.tar-*")} == before
        assert again.results["metrics"] == done.results["metrics"]


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, ...]]:
    """The similarities and labels of every fit."""
    seen: list[tuple[Tensor, ...]] = []
    fit = heldout.fit
    monkeypatch.setattr(heldout, "fit", lambda *given: (seen.append(given), fit(*given))[1])
    return seen


def assert_scored(trainer: Any, items: list[Any], contexts: list[Tensor], fit: tuple[Tensor, ...]) -> None:
    """Check the similarities of a fit: those of these images, each under its own context."""
    clip, transform = trainer.clip.each()[0], trainer.test_loader.dataset.transform
    assert fit[2].tolist() == [item.label for item in items]
    assert len(fit[0]) == len(fit[1]) == len(items)
    for row, (item, context) in enumerate(zip(items, contexts, strict=True)):
        feature = clip.encode_image(transform(read_image(item.impath))[None])[0]
        wanted = feature @ written(clip, CLASSES[:5], "a photo of a {}.").t()
        torch.testing.assert_close(fit[0][row], wanted, rtol=1e-3, atol=1e-5)
        wanted = feature @ learned(clip, CLASSES[:5], context).detach().t()
        torch.testing.assert_close(fit[1][row], wanted, rtol=1e-3, atol=1e-5)


def test_each_image_is_scored_by_a_prompt_not_trained_on_it(
    run: Runner, monkeypatch: pytest.MonkeyPatch, fits: list[tuple[Tensor, ...]]
) -> None:
    """The fit recomputed from the contexts of the folds; and which images each of them was trained on."""
    shown: dict[int, Counter[str]] = {}
    forward_backward = CLIPTrainer.forward_backward

    def watched(self: Any, batch: Any) -> Any:
        phase = self.course.phase
        if phase.name == "fold":
            shown.setdefault(phase.number, Counter()).update(images.image_name(path) for path in batch["impath"])
        return forward_backward(self, batch)

    monkeypatch.setattr(CLIPTrainer, "forward_backward", watched)
    steps, trainers = watch_steps(monkeypatch), watch_trainers(monkeypatch)
    done = run(*HELD, "DATALOADER.TRAIN_X.BATCH_SIZE", "32", **MIX)  # whole folds, so that every image is seen
    items = trainers[0].dm.dataset.train_x
    names = [images.image_name(item.impath) for item in items]
    left_out = {fold: set(names) - set(seen) for fold, seen in shown.items()}
    assert set(left_out) == {0, 1, 2, 3}
    assert sorted(name for gone in left_out.values() for name in gone) == sorted(names)
    for fold, gone in left_out.items():
        assert set(shown[fold].values()) == {2}  # once in each of two epochs
        labels = sorted(item.label for item, name in zip(items, names, strict=True) if name in gone)
        assert labels == [0, 1, 2, 3, 4]  # stratified
    of_fold = {step.phase.number: step.after["fold_prompt.ctx"] for step in steps if step.phase.name == "fold"}
    assert len({float(context.sum()) for context in of_fold.values()}) == 4
    contexts = [next(of_fold[fold] for fold, gone in left_out.items() if name in gone) for name in names]
    assert_scored(trainers[0], items, contexts, fits[0])
    results, (hand_crafted, prompts, labels, _) = done.results["heldout"], fits[0]
    assert (results["folds"], results["images"], done.results["protocol"]["folds"]) == (4, 20, 4)
    grid = np.linspace(0, 1, 101)
    losses = [float(F.cross_entropy(100 * ((1 - pi) * hand_crafted + pi * prompts), labels)) for pi in grid]
    assert results["nll"] <= min(losses) + 1e-5
    assert results["pi_in"] == pytest.approx(grid[int(np.argmin(losses))], abs=0.011)


def test_folds_leave_the_final_prompt_and_fit_pi_in(run: Runner, shared_run: Runner) -> None:
    held = run(*HELD, "TRAIN.CHECKPOINT_FREQ", "1", name="held", **MIX)
    plain = run(*FEW, *keys(N_CTX=2, ENSEMBLE="none"), "OPTIM.MAX_EPOCH", "2", name="plain", **MIX)
    assert equal(state(held, "prompt_learner", LAST), state(plain, "prompt_learner", 2))
    fitted, last = (state(held, "coa_weights", epoch) for epoch in (10, LAST))
    assert float(fitted["inside"].sigmoid()) == pytest.approx(held.results["heldout"]["pi_in"], abs=1e-5)
    assert torch.equal(fitted["inside"], last["inside"])
    assert not torch.equal(fitted["outside"], last["outside"])
    assert held.results["trained_parameters"] == 2 * 128 + 2
    assert not (held.folder / "fold_prompt").exists()
    # An evaluation reports them, whatever its own configuration says.
    again = evaluate(run, held, *FEW, *keys(N_CTX=2), name="again", **MIX)
    for key in ("metrics", "heldout", "fingerprint"):
        assert again.results[key] == held.results[key]
    assert again.results["protocol"]["splits"] == held.results["protocol"]["splits"]
    # Without out-classes there is nothing to train after the folds.
    tied = run(*HELD, *keys(OUT_CLASSES="none"), name="tied", **MIX)
    assert (tied.results["epoch"], "second_stage" in tied.results) == (10, False)


def test_the_fit_does_not_depend_on_batches_or_the_store(run: Runner, tmp_path: Path) -> None:
    """The test batch size may change on a resume: the bits of the features come from the training batch size."""
    off = ["CACHE.MODE", "off", "DATALOADER.TEST.BATCH_SIZE"]
    one, other = (run(*HELD, *off, size, name=size, **MIX) for size in ("1", "20"))
    assert without_time(one) == without_time(other)
    settings = [*HELD, "CACHE.DIR", str(tmp_path / "store")]
    whole = run(*settings, name="whole", **MIX)
    with killed_at(None, 5):
        run(*settings, name="killed", **MIX)
    for path in (tmp_path / "store").rglob("*.safetensors"):
        path.unlink()
    killed = run(*settings, "DATALOADER.TEST.BATCH_SIZE", "1", name="killed", **MIX)
    assert without_time(killed) == without_time(whole)
    assert without_time(one)["pi_in"] == pytest.approx(without_time(whole)["pi_in"], abs=1e-4)


@pytest.mark.usefixtures("data_root")
@pytest.mark.parametrize("mode", ["all", "off"])
def test_images_may_be_repaired_or_lost_during_a_run(
    run: Runner, monkeypatch: pytest.MonkeyPatch, fits: list[tuple[Tensor, ...]], mode: str
) -> None:
    """One is unreadable until the run is killed in a fold, another from then on: each row stays with its own image."""
    trainers = watch_trainers(monkeypatch)
    settings = [*HELD, "DATASET.BAD_IMAGES", "skip", "CACHE.MODE", mode]
    assert run("--no-train", *settings, name="draw", **MIX).status == 0
    items = trainers[-1].dm.dataset.train_x
    repaired, lost = Path(items[2].impath), Path(items[11].impath)
    content = repaired.read_bytes()
    repaired.write_bytes(b"not an image")
    with killed_at(None, 5):
        run(*settings, **MIX)
    repaired.write_bytes(content)
    lost.write_bytes(b"not an image")
    done = run(*settings, **MIX)
    assert done.status == 0, done.output[-500:]
    assert done.results["heldout"]["images"] == 19
    folds, there = trainers[-1].model.heldout.folds, [index for index in range(20) if index != 11]
    contexts = [folds.states[folds.fold_of[index]]["ctx"] for index in there]
    assert_scored(trainers[-1], [items[index] for index in there], contexts, fits[-1])


def test_calibrated_evaluations(run: Runner, shared_run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arg-max at the fitted temperature; refused where none was fitted."""
    trained, logits = shared_run(*HELD, **MIX), watch_logits(monkeypatch)
    times = 0.01 / trained.results["heldout"]["temperature"]
    assert abs(times - 1) > 1e-3
    for subset in ("base", "all"):
        where = [subset if value == "base" else value for value in HELD]
        plain, used = (
            evaluate(run, trained, *where, *keys(CALIBRATED=value), name=f"{subset}{value}", **MIX)
            for value in (False, True)
        )
        same = set(plain.results["metrics"]) - {"ece", "nll", "auroc"}
        assert all(plain.results["metrics"][key] == used.results["metrics"][key] for key in same)
        torch.testing.assert_close(logits[-1], logits[-2] * times, rtol=1e-4, atol=1e-4)
        assert used.results["protocol"]["calibrated"] is True
        assert plain.results["fingerprint"] != used.results["fingerprint"]
    other = shared_run(*FEW, *keys(N_CTX=2), "OPTIM.MAX_EPOCH", "1", name="other", **MIX)
    refused = [
        evaluate(run, other, *HELD, *keys(CALIBRATED=True), name="other-evaluated", **MIX),
        evaluate(run, trained, *HELD, *keys(CALIBRATED=True, ENSEMBLE="uniform"), name="uniform", **MIX),
        run(*FEW, *keys(CALIBRATED=True), name="untrained", **MIX),
        run(*HELD, *keys(CALIBRATED=True), "DATASET.NUM_SHOTS", "1", name="single", **MIX),
    ]
    for done in refused:
        assert done.status == 2
        assert "TRAINER.COCOAMIX.CALIBRATED is True" in done.output
        assert "epoch [" not in done.output


def test_few_images_have_fewer_folds_or_none(run: Runner) -> None:
    """With a single image of a class, the weights are those of WEIGHT_FIT train, and all output says so."""
    two = run(*HELD, "DATASET.NUM_SHOTS", "2", name="two", **MIX)
    assert (two.results["heldout"]["folds"], two.results["epoch"]) == (2, 2 * 3 + 2)
    one = [*HELD, "DATASET.NUM_SHOTS", "1"]
    done, plain = run(*one, name="held", **MIX), run(*one, *keys(WEIGHT_FIT="train"), name="plain", **MIX)
    assert "single training image" in done.results["heldout"]["why"]
    assert (done.results["heldout"]["folds"], done.results["protocol"]["folds"]) == (0, 0)
    assert "WEIGHT_FIT" in (done.folder / "log.txt").read_text()
    assert equal(state(done, "coa_weights", 4), state(plain, "coa_weights", 4))
    assert plain.results["metrics"] == done.results["metrics"]


def test_each_backbone_has_a_prompt_in_every_fold(run: Runner, fits: list[tuple[Tensor, ...]]) -> None:
    """Two identical models: the mean of their similarities is that of one."""
    two = [*HELD, *keys(BACKBONES="['tiny', 'tiny']", BACKBONE_WEIGHTS="['random', 'random']")]
    both, single = run(*two, name="both", **MIX), run(*HELD, name="single", **MIX)
    assert both.results["trained_parameters"] == 2 * single.results["trained_parameters"] - 2
    assert set(state(both, "prompt_learner", LAST)) >= {"0.ctx", "1.ctx"}
    for ours, theirs in zip(fits[0][:3], fits[1][:3], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "key"),
    [(["TEST.FINAL_MODEL", "best_val"], "TEST.FINAL_MODEL"), (["MODEL.INIT_WEIGHTS", "a.pth"], "MODEL.INIT_WEIGHTS")],
)
def test_settings_that_would_show_held_out_images_are_refused(run: Runner, settings: list[str], key: str) -> None:
    done = run(*HELD, *settings, **MIX)
    assert (done.status, key in done.output) == (2, True), done.output[-500:]
