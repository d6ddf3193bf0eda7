"""Weights fitted to held-out images, end to end: which images are seen, what is fitted, kills, evaluations."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cocoamix.coa import heldout
from cocoamix.features import images
from cocoamix.features.reading import read_image
from cocoamix.io import checkpoints
from cocoamix.prompts.context import PromptLearner
from tests.conftest import CLASSES, Run, Runner
from tests.trainers.test_cocoamix import BASE, MIX, keys, saved, subset
from tests.trainers.test_resume import Killed, kill_before_epoch

# Two epochs of the prompt and of each of four folds, and at most four of the weights: twelve or fourteen in all.
HELD = [*BASE, *keys(STAGE="two", WEIGHT_FIT="heldout", WEIGHT_EPOCHS=2, N_CTX=2), "OPTIM.MAX_EPOCH", "2"]
LAST = 2 * 5 + 2
# Two folds, and a second stage of five steps an epoch that continues until the weights converge.
STILL = [*BASE, *keys(STAGE="two", WEIGHT_FIT="heldout", WEIGHT_EPOCHS=0, WEIGHT_TOLERANCE=0.02, WEIGHT_LR=0.02)]
STILL += [*keys(MARGIN=0.02, N_CTX=2), "DATASET.NUM_SHOTS", "2", "DATALOADER.TRAIN_X.BATCH_SIZE", "2"]
STILL += ["OPTIM.MAX_EPOCH", "2", "OPTIM.WEIGHT_DECAY", "0.0", "CACHE.VIEWS", "1"]


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trainers of all runs."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    seen: list[Any] = []
    build = CoCoAMix.build_model
    monkeypatch.setattr(CoCoAMix, "build_model", lambda self: (seen.append(self), build(self))[1])
    return seen


def test_each_image_is_scored_by_a_prompt_not_trained_on_it(
    run: Runner, trainers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit recomputed from the contexts of the folds; and which images each of them was trained on."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    shown: dict[int, Counter[str]] = {}
    contexts: list[torch.Tensor] = []
    fitted: list[tuple[torch.Tensor, ...]] = []
    step, end, fit = CoCoAMix.forward_backward, CoCoAMix._end_fold, heldout.fit

    def watched_step(self: CoCoAMix, batch: Any) -> Any:
        if self.phase == "fold":
            names = [images.image_name(path) for path in batch["impath"]]
            shown.setdefault(self.stages.fold(self.epoch), Counter()).update(names)
        return step(self, batch)

    def watched_end(self: CoCoAMix) -> None:
        contexts.append(self.fold_learners[0].ctx.detach().clone())
        end(self)

    def watched_fit(hand_crafted: torch.Tensor, learned: torch.Tensor, labels: torch.Tensor, scale: float) -> Any:
        fitted.append((hand_crafted, learned, labels))
        return fit(hand_crafted, learned, labels, scale)

    monkeypatch.setattr(CoCoAMix, "forward_backward", watched_step)
    monkeypatch.setattr(CoCoAMix, "_end_fold", watched_end)
    monkeypatch.setattr(heldout, "fit", watched_fit)
    batch = ["DATALOADER.TRAIN_X.BATCH_SIZE", "32"]  # whole folds, so that every image is seen in every epoch
    done = run(*HELD, *batch, **MIX)
    assert done.status == 0, done.output[-800:]
    trainer = trainers[-1]
    items = trainer.dm.dataset.train_x
    names = [images.image_name(item.impath) for item in items]
    assert len(names) == 20
    left_out = {fold: set(names) - set(seen) for fold, seen in shown.items()}
    assert set(left_out) == {0, 1, 2, 3}
    assert set.union(*left_out.values()) == set(names)
    for fold, gone in left_out.items():
        assert set(shown[fold].values()) == {2}  # once in each of two epochs
        labels = sorted(item.label for item, name in zip(items, names, strict=True) if name in gone)
        assert labels == [0, 1, 2, 3, 4]  # stratified
    assert len({tuple(one.flatten().tolist()) for one in contexts}) == 4
    hand_crafted, learned, labels = fitted[0]
    assert labels.tolist() == [item.label for item in items]
    judged_by = [next(contexts[fold] for fold, gone in left_out.items() if name in gone) for name in names]
    assert_scored_by_fold(trainer, [item.impath for item in items], judged_by, hand_crafted, learned)
    results = done.results["heldout"]
    assert (results["folds"], results["images"]) == (4, 20)
    assert results["seconds"] > 0
    assert done.results["protocol"]["folds"] == 4
    grid = np.linspace(0, 1, 101)
    mixed = [torch.nn.functional.cross_entropy(100 * ((1 - x) * hand_crafted + x * learned), labels) for x in grid]
    assert results["nll"] <= min(float(one) for one in mixed) + 1e-5
    assert results["pi_in"] == pytest.approx(grid[int(np.argmin(mixed))], abs=0.011)
    inside = saved(done.folder, "coa_weights", LAST)["state_dict"]["inside"]
    assert float(inside.sigmoid()) == pytest.approx(results["pi_in"], abs=1e-5)


def assert_scored_by_fold(
    trainer: Any, paths: list[str], contexts: list[torch.Tensor], hand_crafted: torch.Tensor, learned: torch.Tensor
) -> None:
    """Check the fitted similarities independently: for these images, each under its own context."""
    clip, transform = trainer.clip.each()[0], trainer.test_loader.dataset.transform
    assert len(hand_crafted) == len(learned) == len(paths)
    for row, (path, context) in enumerate(zip(paths, contexts, strict=True)):
        feature = clip.encode_image(transform(read_image(path))[None])[0]
        learner = PromptLearner(clip, CLASSES[:5], n_ctx=2)
        learner.ctx.data.copy_(context)
        wanted = feature @ clip.encode_prompts(learner()).detach().t()
        torch.testing.assert_close(
            hand_crafted[row], feature @ trainer.hand_crafted_features().t(), rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(learned[row], wanted, rtol=1e-4, atol=1e-5)


def test_final_prompt_matches_a_run_without_folds(run: Runner) -> None:
    held = run(*HELD, "TRAIN.CHECKPOINT_FREQ", "1", name="held", **MIX)
    plain = run(*BASE, *keys(N_CTX=2, ENSEMBLE="none"), "OPTIM.MAX_EPOCH", "2", name="plain", **MIX)
    ours, theirs = saved(held.folder, "prompt_learner", LAST), saved(plain.folder, "prompt_learner", 2)
    assert torch.equal(ours["state_dict"]["ctx"], theirs["state_dict"]["ctx"])
    weights = [saved(held.folder, "coa_weights", epoch)["state_dict"] for epoch in (10, 11, LAST)]
    assert torch.equal(weights[0]["inside"], weights[-1]["inside"])  # unchanged since the fit
    assert not torch.equal(weights[0]["outside"], weights[-1]["outside"])
    assert held.results["trained_parameters"] == 2 * 128 + 2
    assert held.results["second_stage"]["epochs"] == 2
    assert not (held.folder / "fold_prompt").exists()
    encoded = [path.name for path in held.folder.iterdir()]
    assert {"prompt_learner", "coa_weights"} <= set(encoded)


def without_time(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results["heldout"].items() if key != "seconds"}


def assert_same(one: Run, other: Run, last: int = LAST) -> None:
    assert one.results["metrics"] == other.results["metrics"]
    assert without_time(one.results) == without_time(other.results)
    assert one.results["second_stage"] == other.results["second_stage"]
    for model in ("prompt_learner", "coa_weights"):
        ours, theirs = (saved(run.folder, model, last)["state_dict"] for run in (one, other))
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), model


def test_run_killed_in_every_epoch_ends_identically(
    run: Runner, shared_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of each: of the prompt, of every fold, of the weights. The result is the same, bit for bit."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    whole = shared_run(*HELD, name="whole", **MIX)
    step = CoCoAMix.forward_backward
    for stop in range(LAST):

        def stopping(self: CoCoAMix, batch: Any, stop: int = stop) -> Any:
            if self.epoch == stop and self.batch_idx + 1 == self.num_batches:
                raise Killed
            return step(self, batch)

        with monkeypatch.context() as patch:
            patch.setattr(CoCoAMix, "forward_backward", stopping)
            with pytest.raises(Killed):
                run(*HELD, name="killed", **MIX)
    killed = run(*HELD, name="killed", **MIX)
    assert_same(whole, killed)
    assert f"{LAST - 1} of {LAST} epochs are done" in killed.output
    (killed.folder / "resume.pth").unlink()
    assert_same(whole, run(*HELD, name="killed", **MIX))


def test_run_killed_before_its_weights_converge_ends_identically(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fold's prompt, between folds, between the folds and the weights, within rounds, and before the results."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    whole = run(*STILL, name="whole", **MIX)
    assert whole.status == 0, whole.output[-500:]
    stage, last = whole.results["second_stage"], whole.results["epoch"]
    assert stage["ended"] == "converged"
    assert stage["epochs"] >= 20  # two rounds
    assert last == 2 * 3 + stage["epochs"]
    # The folds have the epochs 2 to 5, the weights those from 6 on, in rounds of 10.
    for stop in (3, 4, 6, 9, 18, last - 1):
        kill_before_epoch(stop, monkeypatch, lambda: run(*STILL, name="killed", **MIX))

    def killing(self: CoCoAMix) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(CoCoAMix, "after_train", killing)
        with pytest.raises(Killed):
            run(*STILL, name="killed", **MIX)
    killed = run(*STILL, name="killed", **MIX)
    assert f"{last} of {last} epochs are done" in killed.output
    assert_same(whole, killed, last)


def test_run_killed_in_a_fold_resumes_without_the_store(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold or warm, with any test batch size: the same bits, from batches of the same size.

    Each fold has 15 images, which would be a single batch at size 32; the whole set has 20.
    """
    from cocoamix.features.extract import _Task
    from cocoamix.trainers.cocoamix import CoCoAMix

    settings = [*HELD, "DATALOADER.TRAIN_X.BATCH_SIZE", "32", "CACHE.DIR", str(tmp_path / "store")]
    sizes: set[tuple[str, int]] = set()
    encode, before_epoch = _Task.encode, CoCoAMix.before_epoch

    def watched(self: _Task, *arguments: Any) -> None:
        sizes.add((self.source.bucket, self.source.batch_size))
        encode(self, *arguments)

    def stop(self: CoCoAMix) -> None:
        if self.epoch == 5:
            raise Killed
        before_epoch(self)

    monkeypatch.setattr(_Task, "encode", watched)
    whole = run(*settings, name="whole", **MIX)
    warm = {("EuroSAT/train-seed1", 20), ("EuroSAT/train", 20)}
    assert sizes == warm | {("EuroSAT/test", 20)}
    sizes.clear()
    with monkeypatch.context() as patch:
        patch.setattr(CoCoAMix, "before_epoch", stop)
        with pytest.raises(Killed):
            run(*settings, name="killed", **MIX)
    shutil.rmtree(tmp_path / "store")
    killed = run(*settings, "DATALOADER.TEST.BATCH_SIZE", "1", name="killed", **MIX)
    assert sizes == warm | {("EuroSAT/test", 1)}
    assert without_time(killed.results) == without_time(whole.results)
    for model in ("prompt_learner", "coa_weights"):
        ours, theirs = (saved(one.folder, model, LAST)["state_dict"] for one in (whole, killed))
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), model


def test_test_batch_size_does_not_affect_the_fit(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a store: the twenty training images are encoded in batches of eight, the last one of four."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    sizes: list[int] = []
    plain, encode = CoCoAMix._plain_features, CoCoAMix.encode

    def watched(self: CoCoAMix) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(CoCoAMix, "encode", lambda self, inputs: (sizes.append(len(inputs)), encode(self, inputs))[1])
            return plain(self)

    monkeypatch.setattr(CoCoAMix, "_plain_features", watched)
    few = [*HELD, "OPTIM.MAX_EPOCH", "1", "CACHE.MODE", "off"]
    one, other = (run(*few, "DATALOADER.TEST.BATCH_SIZE", size, name=size, **MIX) for size in ("1", "20"))
    assert sizes == [8, 8, 4] * 2
    assert without_time(one.results) == without_time(other.results)


@pytest.mark.usefixtures("data_root")
@pytest.mark.parametrize("mode", ["all", "off"])
def test_images_may_be_repaired_or_lost_during_a_run(
    run: Runner, trainers: list[Any], monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """One is unreadable until the run is killed in a fold, another from then on: each row stays with its own image."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    settings = [*HELD, "DATASET.BAD_IMAGES", "skip", "CACHE.MODE", mode]
    assert run("--no-train", *settings, name="draw", **MIX).status == 0
    items = trainers[-1].dm.dataset.train_x
    repaired, lost = Path(items[2].impath), Path(items[11].impath)
    content = repaired.read_bytes()
    repaired.write_bytes(b"not an image")
    before_epoch, fit = CoCoAMix.before_epoch, heldout.fit
    fitted: list[tuple[torch.Tensor, ...]] = []

    def stop(self: CoCoAMix) -> None:
        if self.epoch == 5:
            raise Killed
        before_epoch(self)

    def watched(hand_crafted: torch.Tensor, learned: torch.Tensor, labels: torch.Tensor, scale: float) -> Any:
        fitted.append((hand_crafted, learned, labels))
        return fit(hand_crafted, learned, labels, scale)

    monkeypatch.setattr(heldout, "fit", watched)
    with monkeypatch.context() as patch:
        patch.setattr(CoCoAMix, "before_epoch", stop)
        with pytest.raises(Killed):
            run(*settings, **MIX)
    repaired.write_bytes(content)
    lost.write_bytes(b"not an image")
    done = run(*settings, **MIX)
    assert done.status == 0, done.output[-500:]
    trainer = trainers[-1]
    there = [index for index in range(20) if index != 11]
    hand_crafted, learned, labels = fitted[-1]
    assert labels.tolist() == [items[index].label for index in there]
    assert done.results["heldout"]["images"] == 19
    contexts = [trainer.folds.states[trainer.folds.fold_of[index]]["ctx"] for index in there]
    assert_scored_by_fold(trainer, [items[index].impath for index in there], contexts, hand_crafted, learned)


def test_checkpoints_without_resume_file_lack_the_folds(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    from cocoamix.trainers.cocoamix import CoCoAMix

    before_epoch = CoCoAMix.before_epoch

    def stop(self: CoCoAMix) -> None:
        if self.epoch == 5:
            raise KeyboardInterrupt
        before_epoch(self)

    each = ["TRAIN.CHECKPOINT_FREQ", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(CoCoAMix, "before_epoch", stop)
        stopped = run(*HELD, *each, **MIX)
    (stopped.folder / "resume.pth").unlink()
    again = run(*HELD, *each, **MIX)
    assert again.status == 2
    assert "only that file holds the prompts of the folds" in again.output


def test_evaluations_report_the_folds(run: Runner, shared_run: Runner) -> None:
    """Whatever their own configuration says; the fingerprint is the training's."""
    trained = shared_run(*HELD, **MIX)
    model = ["--eval-only", "--model-dir", str(trained.folder)]
    plain = run(*model, *BASE, *keys(N_CTX=2), name="plain", **MIX)
    assert plain.results["metrics"] == trained.results["metrics"]
    assert plain.results["heldout"] == trained.results["heldout"]
    assert plain.results["fingerprint"] == trained.results["fingerprint"]
    assert plain.results["protocol"]["splits"]["folds"] == trained.results["protocol"]["splits"]["folds"]
    other = run(*BASE, *keys(STAGE="two", WEIGHT_EPOCHS=2, N_CTX=2), "OPTIM.MAX_EPOCH", "2", name="other", **MIX)
    assert other.results["fingerprint"] != trained.results["fingerprint"]
    assert "heldout" not in other.results
    wrong = run("--eval-only", "--model-dir", str(other.folder), *HELD, name="wrong", **MIX)
    assert wrong.results["fingerprint"] == other.results["fingerprint"]
    assert "heldout" not in wrong.results


def test_calibrated_logits_have_the_fitted_temperature(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the fitted temperature: the same arg-max, and logits scaled by its ratio to CLIP's."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    trained = run(*HELD, "TRAIN.CHECKPOINT_FREQ", "4", **MIX)
    seen: list[torch.Tensor] = []
    infer = CoCoAMix.model_inference

    def watched(self: CoCoAMix, inputs: torch.Tensor) -> torch.Tensor:
        seen.append(infer(self, inputs))
        return seen[-1]

    monkeypatch.setattr(CoCoAMix, "model_inference", watched)
    model = ["--eval-only", "--model-dir", str(trained.folder)]
    for name in ("base", "all"):
        seen.clear()
        plain, used = (
            run(*model, *subset(HELD, name), *keys(CALIBRATED=value), name=f"{name}{value}", **MIX)
            for value in (False, True)
        )
        same = set(plain.results["metrics"]) - {"ece", "nll", "auroc"}
        assert {plain.results["metrics"][key] == used.results["metrics"][key] for key in same} == {True}
        assert plain.results["metrics"]["nll"] != used.results["metrics"]["nll"]
        before, after = torch.cat(seen[: len(seen) // 2]), torch.cat(seen[len(seen) // 2 :])
        times = 0.01 / trained.results["heldout"]["temperature"]
        torch.testing.assert_close(after, before * times, rtol=1e-4, atol=1e-4)
        assert abs(times - 1) > 1e-3
        assert used.results["protocol"]["calibrated"] is True
        assert plain.results["fingerprint"] != used.results["fingerprint"]
    other = run(*BASE, *keys(N_CTX=2), "OPTIM.MAX_EPOCH", "1", name="other", **MIX)
    refused = run("--eval-only", "--model-dir", str(other.folder), *HELD, *keys(CALIBRATED=True), name="no", **MIX)
    assert refused.status == 2
    assert "TRAINER.COCOAMIX.CALIBRATED is True, but the model was not trained with" in refused.output
    old = run(*model, "--load-epoch", "4", *HELD, *keys(CALIBRATED=True), name="old", **MIX)
    assert old.status == 2
    assert "the checkpoint of epoch 4 was written before the temperature was fitted" in old.output
    for kind in ("uniform", "none"):
        alone = run(*model, *HELD, *keys(CALIBRATED=True, ENSEMBLE=kind), name=kind, **MIX)
        assert alone.status == 2
        assert f"TRAINER.COCOAMIX.CALIBRATED is True, but ENSEMBLE is {kind}" in alone.output
    early = run(*BASE, *keys(CALIBRATED=True), name="early", **MIX)
    assert early.status == 2
    assert "WEIGHT_FIT train fits no temperature" in early.output
    assert "epoch [" not in early.output


def test_one_shot_falls_back_to_the_training_images(run: Runner) -> None:
    """The weights are those of WEIGHT_FIT train, and all output says so."""
    one = [*HELD, "DATASET.NUM_SHOTS", "1"]
    done = run(*one, name="held", **MIX)
    assert done.status == 0, done.output[-500:]
    assert "the weights are fitted to the training images (train)" in done.output
    assert done.results["heldout"]["folds"] == 0
    assert "single training image" in done.results["heldout"]["why"]
    assert done.results["protocol"]["folds"] == 0
    plain = run(*one, *keys(WEIGHT_FIT="train"), name="plain", **MIX)
    for key in ("inside", "outside"):
        ours, theirs = (saved(run.folder, "coa_weights", 4)["state_dict"][key] for run in (done, plain))
        assert torch.equal(ours, theirs)
    assert plain.results["metrics"] == done.results["metrics"]
    for number, start in enumerate(([], ["--eval-only", "--model-dir", str(done.folder)])):
        refused = run(*start, *one, *keys(CALIBRATED=True), name=f"refused{number}", **MIX)
        assert refused.status == 2
        assert "CALIBRATED is True, but no temperature is fitted, because a class has a single" in refused.output
        assert "epoch [" not in refused.output


def test_two_shots_make_two_folds(run: Runner) -> None:
    done = run(*HELD, "DATASET.NUM_SHOTS", "2", **MIX)
    assert done.results["heldout"]["folds"] == 2
    assert done.results["epoch"] == 2 * 3 + 2


def test_without_out_classes_training_ends_after_the_folds(run: Runner) -> None:
    """There is nothing to train after the folds: out-classes take pi^in."""
    done = run(*HELD, *keys(OUT_CLASSES="none"), **MIX)
    assert done.status == 0, done.output[-500:]
    assert done.results["epoch"] == 10
    assert "second_stage" not in done.results
    inside = saved(done.folder, "coa_weights", 10)["state_dict"]["inside"]
    assert float(inside.sigmoid()) == pytest.approx(done.results["heldout"]["pi_in"], abs=1e-5)
    again = run(*HELD, *keys(OUT_CLASSES="none"), **MIX)
    assert "10 of 10 epochs are done" in again.output


def test_each_backbone_has_a_prompt_in_every_fold(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a prompt in every fold; a kill in one of them changes nothing."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    two = [*HELD, *keys(BACKBONES="['tiny', 'tiny']", BACKBONE_WEIGHTS="['random', 'random']")]
    fitted: list[tuple[torch.Tensor, torch.Tensor]] = []
    fit = heldout.fit

    def watched_fit(hand_crafted: torch.Tensor, learned: torch.Tensor, *rest: Any) -> Any:
        fitted.append((hand_crafted, learned))
        return fit(hand_crafted, learned, *rest)

    monkeypatch.setattr(heldout, "fit", watched_fit)
    whole = run(*two, name="whole", **MIX)
    assert whole.status == 0, whole.output[-500:]
    before_epoch = CoCoAMix.before_epoch

    def stop(self: CoCoAMix) -> None:
        if self.epoch == 5:
            raise KeyboardInterrupt
        before_epoch(self)

    with monkeypatch.context() as patch:
        patch.setattr(CoCoAMix, "before_epoch", stop)
        stopped = run(*two, name="killed", **MIX)
    state = checkpoints.load(Path(stopped.folder, "resume.pth"))
    assert set(state["models"]["fold_prompt"]) == {"0.ctx", "1.ctx"}
    assert len(state["heldout"]["states"]) == 1
    assert_same(whole, run(*two, name="killed", **MIX))
    # The two models are identical, and so are their folds' contexts: their mean equals one of them.
    single = run(*HELD, name="single", **MIX)
    assert without_time(single.results)["images"] == 20
    for ours, theirs in zip(fitted[0], fitted[-1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (keys(WEIGHT_FIT="held"), "TRAINER.COCOAMIX.WEIGHT_FIT is 'held'"),
        (keys(STAGE="one"), "TRAINER.COCOAMIX.WEIGHT_FIT is heldout, but STAGE is one"),
        (["TEST.FINAL_MODEL", "best_val"], "use last_step, or WEIGHT_FIT train"),
        (
            ["MODEL.INIT_WEIGHTS", "trained.pth"],
            "MODEL.INIT_WEIGHTS is trained.pth, but TRAINER.COCOAMIX.WEIGHT_FIT is heldout",
        ),
    ],
)
def test_invalid_settings_are_refused(run: Runner, extra: list[str], words: str) -> None:
    done = run(*HELD, *extra, **MIX)
    assert done.status == 2
    assert words in done.output


def test_weights_are_the_same_without_the_store(run: Runner) -> None:
    """Features from the encoder in every step, or from the store: the same weights."""
    stored, encoded = (run(*HELD, "CACHE.MODE", mode, name=mode, **MIX) for mode in ("all", "off"))
    assert without_time(stored.results)["pi_in"] == pytest.approx(without_time(encoded.results)["pi_in"], abs=1e-4)
