"""Weights fitted to held-out images, end to end: who sees what, what is fitted, kills, evaluations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cocoamix import checkpoints, heldout, images
from cocoamix.prompts import PromptLearner
from tests.conftest import CLASSES, Run, Runner
from tests.trainers.test_cocoamix import BASE, MIX, keys, saved, subset
from tests.trainers.test_resume import Killed

# Two epochs of the prompt and of each of four folds, and at most four of the weights: twelve or fourteen in all.
HELD = [*BASE, *keys(STAGE="two", WEIGHT_FIT="heldout", WEIGHT_EPOCHS=2, N_CTX=2), "OPTIM.MAX_EPOCH", "2"]
LAST = 2 * 5 + 2


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The trainers of all runs."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    seen: list[Any] = []
    build = CoCoAMix.build_model
    monkeypatch.setattr(CoCoAMix, "build_model", lambda self: (seen.append(self), build(self))[1])
    return seen


def test_each_image_is_judged_by_a_prompt_that_did_not_see_it(
    run: Runner, trainers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fit from the contexts of the folds, by another path; and which images each of them was tuned on."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    shown: dict[int, Counter[str]] = {}
    contexts: list[torch.Tensor] = []
    fitted: list[tuple[torch.Tensor, ...]] = []
    step, end, fit = CoCoAMix.forward_backward, CoCoAMix._end_fold, heldout.fit

    def watched_step(self: CoCoAMix, batch: Any) -> Any:
        if self.phase == "fold":
            shown.setdefault(self.fold, Counter()).update(images.image_name(path) for path in batch["impath"])
        return step(self, batch)

    def watched_end(self: CoCoAMix) -> None:
        contexts.append(self.fold_learners[0].ctx.detach().clone())
        end(self)

    def watched_fit(general: torch.Tensor, special: torch.Tensor, labels: torch.Tensor, scale: float) -> Any:
        fitted.append((general, special, labels))
        return fit(general, special, labels, scale)

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
    general, special, labels = fitted[0]
    assert labels.tolist() == [item.label for item in items]
    clip, classes = trainer.backbones[0], CLASSES[:5]
    transform = trainer.test_loader.dataset.transform
    pictures = torch.stack([transform(images.read_image(item.impath)) for item in items])
    features = clip.encode_image(pictures)
    torch.testing.assert_close(general, features @ trainer.handmade.t(), rtol=1e-4, atol=1e-5)
    for index, name in enumerate(names):
        (fold,) = (fold for fold, gone in left_out.items() if name in gone)
        learner = PromptLearner(clip, classes, n_ctx=2)
        learner.ctx.data.copy_(contexts[fold])
        wanted = features[index] @ clip.encode_prompts(learner()).detach().t()
        torch.testing.assert_close(special[index], wanted, rtol=1e-4, atol=1e-5)
    told = done.results["heldout"]
    assert (told["folds"], told["images"]) == (4, 20)
    assert told["seconds"] > 0
    assert done.results["protocol"]["folds"] == 4
    grid = np.linspace(0, 1, 101)
    mixed = [torch.nn.functional.cross_entropy(100 * ((1 - x) * general + x * special), labels) for x in grid]
    assert told["nll"] <= min(float(one) for one in mixed) + 1e-5
    assert told["pi_in"] == pytest.approx(grid[int(np.argmin(mixed))], abs=0.011)
    inside = saved(done.folder, "coa_weights", LAST)["state_dict"]["inside"]
    assert float(inside.sigmoid()) == pytest.approx(told["pi_in"], abs=1e-5)


def test_the_final_prompt_is_that_of_a_run_without_folds(run: Runner) -> None:
    held = run(*HELD, "TRAIN.CHECKPOINT_FREQ", "1", name="held", **MIX)
    plain = run(*BASE, *keys(N_CTX=2, ENSEMBLE="none"), "OPTIM.MAX_EPOCH", "2", name="plain", **MIX)
    ours, theirs = saved(held.folder, "prompt_learner", LAST), saved(plain.folder, "prompt_learner", 2)
    assert torch.equal(ours["state_dict"]["ctx"], theirs["state_dict"]["ctx"])
    weights = [saved(held.folder, "coa_weights", epoch)["state_dict"] for epoch in (10, 11, LAST)]
    assert torch.equal(weights[0]["inside"], weights[-1]["inside"])  # stays as it was fitted
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


def test_killed_in_every_epoch(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of each: of the prompt, of every fold, of the weights. The end is the same, bit by bit."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    whole = run(*HELD, name="whole", **MIX)
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


def test_checkpoints_alone_do_not_have_the_folds(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "which alone has the prompts of the folds" in again.output


def test_evaluations_tell_of_the_folds(run: Runner, trainers: list[Any]) -> None:
    """Whatever their own configuration says; the fingerprint is that of the training."""
    trained = run(*HELD, **MIX)
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


def test_calibrated(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the fitted temperature: the same arg-max, and logits in its proportion to CLIP's."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    trained = run(*HELD, **MIX)
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
    early = run(*BASE, *keys(CALIBRATED=True), name="early", **MIX)
    assert early.status == 2
    assert "no temperature is fitted where WEIGHT_FIT is train" in early.output
    assert "epoch [" not in early.output


def test_one_shot_falls_back(run: Runner) -> None:
    """The weights are those of WEIGHT_FIT train, and everything says so."""
    one = [*HELD, "DATASET.NUM_SHOTS", "1", *keys(CALIBRATED=True)]
    done = run(*one, name="held", **MIX)
    assert done.status == 0, done.output[-500:]
    assert "the weights are fitted to the training images (train)" in done.output
    assert done.results["heldout"]["folds"] == 0
    assert "single training image" in done.results["heldout"]["why"]
    assert done.results["protocol"]["folds"] == 0
    plain = run(*one, *keys(WEIGHT_FIT="train", CALIBRATED=False), name="plain", **MIX)
    for key in ("inside", "outside"):
        ours, theirs = (saved(run.folder, "coa_weights", 4)["state_dict"][key] for run in (done, plain))
        assert torch.equal(ours, theirs)
    assert plain.results["metrics"] == done.results["metrics"]


def test_two_shots_make_two_folds(run: Runner) -> None:
    done = run(*HELD, "DATASET.NUM_SHOTS", "2", **MIX)
    assert done.results["heldout"]["folds"] == 2
    assert done.results["epoch"] == 2 * 3 + 2


def test_without_out_classes(run: Runner) -> None:
    """There is nothing to train after the folds: out-classes take pi^in."""
    done = run(*HELD, *keys(OUT_CLASSES="none"), **MIX)
    assert done.status == 0, done.output[-500:]
    assert done.results["epoch"] == 10
    assert "second_stage" not in done.results
    inside = saved(done.folder, "coa_weights", 10)["state_dict"]["inside"]
    assert float(inside.sigmoid()) == pytest.approx(done.results["heldout"]["pi_in"], abs=1e-5)
    again = run(*HELD, *keys(OUT_CLASSES="none"), **MIX)
    assert "10 of 10 epochs are done" in again.output


def test_several_backbones(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a prompt in every fold; a kill in one of them changes nothing."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    two = [*HELD, *keys(BACKBONES="['tiny', 'tiny']", BACKBONE_WEIGHTS="['random', 'random']")]
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
    assert 0 <= whole.results["heldout"]["pi_in"] <= 1


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (keys(WEIGHT_FIT="held"), "TRAINER.COCOAMIX.WEIGHT_FIT is 'held'"),
        (keys(STAGE="one"), "TRAINER.COCOAMIX.WEIGHT_FIT is heldout, but STAGE is one"),
        (["TEST.FINAL_MODEL", "best_val"], "use last_step, or WEIGHT_FIT train"),
    ],
)
def test_refusals(run: Runner, extra: list[str], words: str) -> None:
    done = run(*HELD, *extra, **MIX)
    assert done.status == 2
    assert words in done.output


def test_without_the_store(run: Runner) -> None:
    """Features from the encoder in every step, or from the store: the same weights."""
    stored, encoded = (run(*HELD, "CACHE.MODE", mode, name=mode, **MIX) for mode in ("all", "off"))
    assert without_time(stored.results)["pi_in"] == pytest.approx(without_time(encoded.results)["pi_in"], abs=1e-4)
