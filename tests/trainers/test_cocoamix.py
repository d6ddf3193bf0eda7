"""CoCoA-Mix end to end: phases, ensembles, label spaces, several backbones, separate gradients, resume."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from cocoamix.io import checkpoints
from tests.conftest import Runner
from tests.trainers.test_resume import Killed, kill_before_epoch

BASE = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base", "OPTIM.NAME", "adam", "OPTIM.LR", "0.002"]
MIX = {"trainer": "CoCoAMix"}


def keys(**values: object) -> list[str]:
    return [part for key, value in values.items() for part in (f"TRAINER.COCOAMIX.{key}", str(value))]


def subset(settings: list[str], name: str) -> list[str]:
    return [name if part == "base" else part for part in settings]


def saved(folder: Path, model: str, epoch: int) -> dict[str, Any]:
    return checkpoints.load(folder / model / f"model.pth.tar-{epoch}")


def test_weights_follow_the_classes(run: Runner, shared_run: Runner) -> None:
    """Trained on base; separate evaluations on new and all pick pi^in and pi^out by the names in the checkpoint."""
    trained = shared_run(*BASE, **MIX)
    for term in ("loss", "ce", "coa", "mix", "ent", "acc", "acc_mix", "pi_in", "pi_out"):
        assert re.search(rf" {term} [\d.]+ \([\d.]+\)", trained.output), term
    weights = saved(trained.folder, "coa_weights", 4)
    assert set(weights["state_dict"]) == {"inside", "outside"}
    assert len(weights["cocoamix"]["out_classes"]) == 5
    assert trained.results["trained_parameters"] == 16 * 128 + 2
    tau = {key: float((-value).exp()) for key, value in weights["state_dict"].items()}
    pi = {key: 0.01 / (0.01 + value) for key, value in tau.items()}
    evaluate = ["--eval-only", "--model-dir", str(trained.folder)]
    for name, wanted in (("base", (pi["inside"],) * 2), ("new", (pi["outside"],) * 2), ("all", sorted(pi.values()))):
        done = run(*evaluate, *subset(BASE, name), name=name, **MIX)
        found = re.search(r"learned prompt: ([\d.]+) to ([\d.]+)", done.output)
        assert found is not None
        assert [float(x) for x in found.groups()] == pytest.approx(list(wanted), abs=1e-4)
        if name == "base":
            assert done.results["metrics"] == trained.results["metrics"]
        metrics = done.results["metrics"]
        assert ("harmonic_mean" in metrics) == (name == "all")
    base, new = metrics["base_accuracy"], metrics["new_accuracy"]
    assert metrics["accuracy"] == pytest.approx((base + new) / 2)  # halves of equal size
    assert metrics["harmonic_mean"] == pytest.approx(2 * base * new / (base + new) if base + new else 0)
    forced = run(*evaluate, *subset(BASE, "new"), *keys(DOMAIN="in"), name="forced", **MIX)
    assert f"learned prompt: {pi['inside']:.4f}" in forced.output


def test_gradients_are_kept_separate(run: Runner, shared_run: Runner) -> None:
    """The weights' losses do not affect the prompt, and the prompt's own loss does not affect the weights."""

    def context(name: str, **values: object) -> torch.Tensor:
        done = run(*BASE, *keys(**values), name=name, **MIX)
        return saved(done.folder, "prompt_learner", 4)["state_dict"]["ctx"]  # type: ignore[no-any-return]

    plain = saved(shared_run(*BASE, **MIX).folder, "prompt_learner", 4)["state_dict"]["ctx"]
    assert torch.equal(plain, context("heavier", W_IN=100.0, W_OUT=1000.0))
    assert torch.equal(plain, context("alone", ENSEMBLE="none"))
    assert torch.equal(plain, context("uniform", ENSEMBLE="uniform"))
    assert not torch.equal(plain, context("cross-entropy", LOSS="ce"))
    still = ["OPTIM.LR", "0.0", "OPTIM.WARMUP_EPOCH", "0"]  # of the prompt, whose loss is the only difference
    runs = [run(*BASE, *still, *keys(W=w, WEIGHT_LR=0.1), name=f"w{w}", **MIX) for w in (0.0, 5.0)]
    first, second = (saved(one.folder, "coa_weights", 4)["state_dict"] for one in runs)
    for side in ("inside", "outside"):
        assert torch.equal(first[side], second[side])
        assert abs(float(first[side]) - math.log(100)) > 1e-3  # it has moved


def test_equal_weights_are_the_uniform_ensemble(run: Runner) -> None:
    still = [*BASE, "OPTIM.WARMUP_EPOCH", "0"]
    learned = run(*still, *keys(WEIGHT_LR=0.0), name="learned", **MIX)
    uniform = run(*still, *keys(ENSEMBLE="uniform"), name="uniform", **MIX)
    found = [one.results["metrics"] for one in (learned, uniform)]
    # The same ranking, at a total scale that is the sum of both prompts'.
    sharp, plain = ((metrics.pop("nll"), metrics.pop("ece")) for metrics in found)
    assert found[0] == found[1]
    assert sharp != plain
    assert not (uniform.folder / "coa_weights").exists()
    assert uniform.results["trained_parameters"] == 16 * 128


def test_second_stage_trains_only_the_weights(run: Runner) -> None:
    done = run(*BASE, *keys(STAGE="two", WEIGHT_EPOCHS=3), **MIX)
    assert done.status == 0, done.output[-500:]
    assert "epoch [7/7]" in done.output
    first, second = done.output.split("epoch [5/7] batch [1/2]")
    assert "pi_in" not in first.split("epoch [1/7]")[1]
    assert " coa " not in second.split("Finish training")[0]
    last = saved(done.folder, "prompt_learner", 7)["state_dict"]["ctx"]
    alone = run(*BASE, *keys(ENSEMBLE="none"), name="alone", **MIX)
    assert torch.equal(last, saved(alone.folder, "prompt_learner", 4)["state_dict"]["ctx"])  # unchanged since
    rates = [float(rate) for rate in re.findall(r"batch \[1/2\].* lr (\S+)", done.output)]
    assert rates[4:] == pytest.approx([0.002, 0.0015, 0.0005])  # a separate schedule, without a warm-up
    inside = saved(done.folder, "coa_weights", 7)["state_dict"]["inside"]
    assert inside.item() != 0
    stage = done.results["second_stage"]
    assert (stage["epochs"], stage["steps"], stage["ended"]) == (3, 6, "length")
    assert stage["pi_in"] == pytest.approx(float(inside.sigmoid()))
    again = run("--eval-only", "--model-dir", str(done.folder), *BASE, name="again", **MIX)
    assert again.results["second_stage"] == stage
    weights = done.results["weights"]
    assert weights == again.results["weights"]
    assert weights["pi_in"] == pytest.approx(float(inside.sigmoid()))
    assert "weights" not in alone.results


# One step per epoch, like EuroSAT's base classes with 4 shots, and a rate that converges quickly.
ONE_STEP = ["DATALOADER.TRAIN_X.BATCH_SIZE", "32", "OPTIM.MAX_EPOCH", "2", "TRAINER.COCOAMIX.WEIGHT_LR", "0.02"]
ONE_STEP += ["CACHE.VIEWS", "1", "OPTIM.WEIGHT_DECAY", "0.0", *keys(STAGE="two", MARGIN=0.02)]


def test_second_stage_continues_until_the_weights_converge(run: Runner) -> None:
    """They end at the same values as with twice as many epochs at the same rate."""
    settings = [*BASE, *ONE_STEP, *keys(WEIGHT_LR=0.08)]
    done = run(*settings, **MIX)
    assert done.status == 0, done.output[-500:]
    stage = done.results["second_stage"]
    assert stage["ended"] == "converged"
    assert stage["moved"] < 1e-3
    assert stage["steps"] == stage["epochs"]
    assert stage["epochs"] % 50 == 0
    assert stage["epochs"] < 1000
    assert f"converged after {stage['epochs']} epochs: pi moved by {stage['moved']:.6f}" in done.output
    assert done.results["epoch"] == 2 + stage["epochs"]
    assert (done.folder / "coa_weights" / f"model.pth.tar-{2 + stage['epochs']}").is_file()
    rates = {float(rate) for rate in re.findall(r"batch \[1/1\].* lr (\S+)", done.output)[2:]}
    assert rates == {0.08}
    constant = ["OPTIM.LR_SCHEDULER", "single_step", "TRAINER.COCOAMIX.WEIGHT_EPOCHS", str(2 * stage["epochs"])]
    longer = run(*settings, *constant, name="longer", **MIX).results["second_stage"]
    assert abs(stage["pi_in"] - 0.5) > 0.05
    for key in ("pi_in", "pi_out"):
        assert stage[key] == pytest.approx(longer[key], abs=0.005), key


def test_second_stage_ends_at_its_maximum_length(run: Runner) -> None:
    done = run(*BASE, *keys(STAGE="two", WEIGHT_MAX_STEPS=7), **MIX)
    stage = done.results["second_stage"]
    assert (stage["epochs"], stage["steps"], stage["ended"]) == (3, 6, "bound")
    assert "reached WEIGHT_MAX_STEPS (7) without converging" in done.output


def test_open_ended_second_stage_encodes_nothing_new(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    from cocoamix.trainers.cocoamix import CoCoAMix

    seen: list[int] = []
    show = CoCoAMix._set_epoch_view

    def showing(self: CoCoAMix) -> None:
        show(self)
        seen.append(self.train_loader_x.dataset.view)  # type: ignore[attr-defined]

    monkeypatch.setattr(CoCoAMix, "_set_epoch_view", showing)
    bound = keys(STAGE="two", WEIGHT_MAX_STEPS=12)
    run(*BASE, *bound, **MIX)
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    seen.clear()
    run(*BASE, *bound, *keys(WEIGHT_EPOCHS=2), name="known", **MIX)
    assert seen == [0, 1, 2, 3, 4, 5]


def test_run_killed_in_an_open_ended_second_stage_ends_identically(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first stage, within rounds, in the last epoch, and after it: the same end for the same reason."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    settings = [*BASE, *ONE_STEP, *keys(WEIGHT_TOLERANCE=0.02)]
    whole = run(*settings, name="whole", **MIX)
    stage = whole.results["second_stage"]
    last = whole.results["epoch"]
    assert stage["ended"] == "converged"
    assert stage["epochs"] >= 100
    for stop in (1, 2, 20, 60, last - 1):
        kill_before_epoch(stop, monkeypatch, lambda: run(*settings, name="killed", **MIX))
    for hook in ("after_train", "test"):

        def killing(self: CoCoAMix, *_: Any) -> None:
            raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(CoCoAMix, hook, killing)
            with pytest.raises(Killed):
                run(*settings, name="killed", **MIX)
    killed = run(*settings, name="killed", **MIX)
    assert f"{last} of {last} epochs are done" in killed.output
    assert killed.results["second_stage"] == stage
    assert killed.results["metrics"] == whole.results["metrics"]
    (killed.folder / "resume.pth").unlink()  # only the checkpoints record that it has ended
    alone = run(*settings, name="killed", **MIX)
    assert f"{last} of {last} epochs are done" in alone.output
    assert alone.results["second_stage"] == stage
    for model in ("prompt_learner", "coa_weights"):
        ours, theirs = (saved(one.folder, model, last) for one in (whole, killed))
        for key, value in ours["state_dict"].items():
            assert torch.equal(value, theirs["state_dict"][key]), (model, key)


@pytest.mark.parametrize(
    "values", [{"STAGE": "two", "WEIGHT_EPOCHS": 2}, {"TEMPLATE": "{} texture."}, {"OUT_CLASSES": "none"}]
)
def test_evaluation_follows_the_checkpoint(run: Runner, values: dict[str, object]) -> None:
    """The checkpoint defines what the weights mean; a plain configuration evaluates it correctly."""
    trained = run(*BASE, *keys(**values), **MIX)
    evaluate = ["--eval-only", "--model-dir", str(trained.folder), *subset(BASE, "all")]
    right, plain = (run(*evaluate, *extra, name=f"n{len(extra)}", **MIX) for extra in (keys(**values), []))
    assert right.results["metrics"] == plain.results["metrics"]
    pattern = r"learned prompt: .*"
    assert re.findall(pattern, right.output) == re.findall(pattern, plain.output)
    assert "as in training" in plain.output
    assert right.results["fingerprint"] == plain.results["fingerprint"]


def test_centring_changes_only_evaluations_on_all_classes(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Base and new have one weight each and are unchanged, bit for bit; all classes together are centred."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    trained = run(*BASE, *keys(WEIGHT_LR=0.5), **MIX)  # so that the weights differ
    seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    infer = CoCoAMix.model_inference

    def watched(self: CoCoAMix, inputs: torch.Tensor) -> torch.Tensor:
        logits = infer(self, inputs)
        features = self.encode(inputs).double()
        sides = [features @ text.double().t() for text in (self.hand_crafted_features(), self._evaluated_features)]
        seen.append((logits, torch.stack(sides), self.weights.pi(self.head.owner).double()))
        return logits

    monkeypatch.setattr(CoCoAMix, "model_inference", watched)
    evaluate = ["--eval-only", "--model-dir", str(trained.folder)]
    for name in ("base", "new", "all"):
        seen.clear()
        off, on = (
            run(*evaluate, *subset(BASE, name), *keys(CENTRE=value), name=f"{name}{value}", **MIX)
            for value in (False, True)
        )
        half = len(seen) // 2
        same = all(torch.equal(one[0], other[0]) for one, other in zip(seen[:half], seen[half:], strict=True))
        assert same == (name != "all")
        assert ("are centred" in on.output) == (name == "all")
        assert on.results["config"]["TRAINER"]["COCOAMIX"]["CENTRE"]
        assert (on.results["fingerprint"] == off.results["fingerprint"]) == (name != "all")
        assert on.results["protocol"].get("centred", False) == (name == "all")
        assert "as in training" not in on.output
    logits, sides, pi = seen[-1]
    wanted = 100 * ((sides - sides.mean(dim=2, keepdim=True)) * pi[:, None]).sum(dim=0)
    torch.testing.assert_close(logits.double(), wanted, rtol=1e-3, atol=1e-3)
    plain = 100 * (sides * pi[:, None]).sum(dim=0)
    assert not torch.allclose(logits.double(), plain, atol=0.1)


@pytest.mark.parametrize("kind", ["word", "string", "both", "none"])
def test_each_kind_of_out_classes_trains(run: Runner, kind: str) -> None:
    done = run(*BASE, *keys(OUT_CLASSES=kind), "OPTIM.MAX_EPOCH", "2", **MIX)
    assert done.status == 0
    assert ("ent " in done.output) == (kind != "none")
    new = run(
        "--eval-only", "--model-dir", str(done.folder), *subset(BASE, "new"), *keys(OUT_CLASSES=kind), name="n", **MIX
    )
    if kind == "none":  # out-classes take pi^in
        inside = saved(done.folder, "coa_weights", 2)["state_dict"]["inside"]
        assert f"{float(0.01 / (0.01 + (-inside).exp())):.4f}" in new.output


def test_each_backbone_has_a_context(run: Runner, tmp_path: Path) -> None:
    """Two models have a context each, and two weights in all."""
    from cocoamix.clip.backbones import BACKBONES
    from cocoamix.clip.openai import build_openai

    torch.manual_seed(7)
    torch.save(build_openai(BACKBONES["tiny"].sizes).state_dict(), tmp_path / "other.pt")
    names = keys(BACKBONES="['tiny', 'tiny']")
    files = f"['random', '{tmp_path / 'other.pt'}']"
    both = run(*BASE, *names, *keys(BACKBONE_WEIGHTS=files), name="both", **MIX)
    assert both.results["trained_parameters"] == 2 * 16 * 128 + 2
    assert set(saved(both.folder, "prompt_learner", 4)["state_dict"]) >= {"0.ctx", "1.ctx"}
    model = ["--eval-only", "--model-dir", str(both.folder)]
    again = run(*model, *BASE, *names, *keys(BACKBONE_WEIGHTS=files), name="again", **MIX)
    assert again.results["metrics"] == both.results["metrics"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"LOSS": "cea"}, "TRAINER.COCOAMIX.LOSS"),
        ({"ENSEMBLE": "mean"}, "TRAINER.COCOAMIX.ENSEMBLE"),
        ({"STAGE": "three"}, "TRAINER.COCOAMIX.STAGE"),
        ({"OUT_CLASSES": "words"}, "Did you mean word?"),
        ({"DOMAIN": "inside"}, "TRAINER.COCOAMIX.DOMAIN"),
        ({"MARGIN": 2.0}, "TRAINER.COCOAMIX.MARGIN is 2.0"),
        ({"WEIGHT_EPOCHS": -1}, "TRAINER.COCOAMIX.WEIGHT_EPOCHS is -1"),
        ({"WEIGHT_TOLERANCE": 0.0}, "TRAINER.COCOAMIX.WEIGHT_TOLERANCE is 0.0"),
        ({"WEIGHT_MAX_STEPS": 0}, "TRAINER.COCOAMIX.WEIGHT_MAX_STEPS is 0"),
        ({"Q": 0.0}, "TRAINER.COCOAMIX.Q is 0.0"),
        ({"W": -1.0}, "TRAINER.COCOAMIX.W is -1.0"),
        ({"TEMPLATE": "a photo"}, "needs one {}"),
        ({"TEMPLATE": "['a {}.', 'b']"}, "needs one {}"),
        ({"BACKBONES": "['tiny', 'tiny']", "BACKBONE_WEIGHTS": "['random']"}, "Name one for each"),
    ],
)
def test_invalid_values_are_refused(run: Runner, values: dict[str, object], words: str) -> None:
    done = run(*BASE, *keys(**values), **MIX)
    assert done.status == 2
    assert words in done.output


@pytest.mark.parametrize("template", ["dataset", "['a photo of a {}.', 'dataset', '{}.']"])
def test_the_datasets_template_is_always_included(run: Runner, template: str) -> None:
    done = run(*BASE, *keys(TEMPLATE=template), "OPTIM.MAX_EPOCH", "1", **MIX)
    assert done.status == 0
    assert "a centered satellite photo of {}." in done.results["protocol"]["templates"]


@pytest.mark.parametrize("stage", ["one", "two"])
def test_run_killed_in_every_epoch_ends_identically(run: Runner, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the middle of every epoch and restarted: bitwise equal to the uninterrupted run."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    settings = [*BASE, *keys(STAGE=stage, WEIGHT_EPOCHS=2), "OPTIM.MAX_EPOCH", "3"]
    whole = run(*settings, name="whole", **MIX)
    epochs = 3 if stage == "one" else 5
    step = CoCoAMix.forward_backward

    for stop in range(epochs):

        def stopping(self: CoCoAMix, batch: Any, stop: int = stop) -> Any:
            if self.epoch == stop and self.batch_idx == 1:
                raise Killed
            return step(self, batch)

        with monkeypatch.context() as patch:
            patch.setattr(CoCoAMix, "forward_backward", stopping)
            with pytest.raises(Killed):
                run(*settings, name="killed", **MIX)
    killed = run(*settings, name="killed", **MIX)
    assert killed.results["metrics"] == whole.results["metrics"]
    for model in ("prompt_learner", "coa_weights"):
        ours, theirs = (saved(one.folder, model, epochs) for one in (whole, killed))
        for key, value in ours["state_dict"].items():
            assert torch.equal(value, theirs["state_dict"][key]), (model, key)


def remove_newer_keys(path: Path, *given: str) -> None:
    """Turn a resume file into one from before CoCoA-Mix had its newer keys, except for those given."""
    later = ("WEIGHT_TOLERANCE", "WEIGHT_MAX_STEPS", "WEIGHT_FIT", "CENTRE", "CALIBRATED")
    content = checkpoints.load(path)
    settings = content["settings"] if "settings" in content else content["cocoamix"]["settings"]
    for key in later:
        if key not in given:
            del settings[f"TRAINER.COCOAMIX.{key}"]
    if "WEIGHT_EPOCHS" not in given:
        settings["TRAINER.COCOAMIX.WEIGHT_EPOCHS"] = 10  # the default at that time
    checkpoints.save(path, content)


def kill_at(epoch: int, run: Runner, monkeypatch: pytest.MonkeyPatch, *settings: str) -> None:
    """Kill a run before an epoch."""
    from cocoamix.trainers.cocoamix import CoCoAMix

    before_epoch = CoCoAMix.before_epoch

    def stopping(self: CoCoAMix) -> None:
        if self.epoch == epoch:
            raise Killed
        before_epoch(self)

    with monkeypatch.context() as patch:
        patch.setattr(CoCoAMix, "before_epoch", stopping)
        with pytest.raises(Killed):
            run(*settings, **MIX)


@pytest.mark.parametrize("values", [{}, {"ENSEMBLE": "uniform", "STAGE": "two"}, {"WEIGHT_EPOCHS": 7}])
def test_one_stage_resumes_from_a_state_without_newer_keys(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, object]
) -> None:
    """It uses none of the second stage's keys, of which one had another default; the others are off."""
    settings = [*BASE, *keys(**values)]
    whole = run(*settings, name="whole", **MIX)
    kill_at(2, run, monkeypatch, *settings)
    resume = tmp_path / "run" / "resume.pth"
    remove_newer_keys(resume, *values)
    for later in ({"CENTRE": True}, {"W": 2.0}):
        (key,) = later
        other = run(*settings, *keys(**later), **MIX)
        assert other.status == 2
        assert re.search(rf"TRAINER.COCOAMIX.{key} was \S+ and is {later[key]}\)", other.output)
    resumed = run(*settings, **MIX)
    assert "2 of 4 epochs are done" in resumed.output
    assert resumed.results["metrics"] == whole.results["metrics"]
    for model in ("prompt_learner", *(["coa_weights"] if "ENSEMBLE" not in values else [])):
        ours, theirs = (saved(one.folder, model, 4)["state_dict"] for one in (whole, resumed))
        assert all(torch.equal(ours[key], theirs[key]) for key in ours), model


def test_two_stages_resume_only_from_a_state_without_warm_up(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their weights had a warm-up, so they are refused; states that only lack WEIGHT_FIT resume."""
    settings = [*BASE, *keys(STAGE="two", WEIGHT_EPOCHS=2)]
    kill_at(2, run, monkeypatch, *settings)
    resume = tmp_path / "run" / "resume.pth"
    before = resume.read_bytes()
    remove_newer_keys(resume, "WEIGHT_EPOCHS")
    refused = run(*settings, **MIX)
    assert refused.status == 2
    assert "WEIGHT_TOLERANCE is 0.001, but that run did not record this key" in refused.output
    resume.write_bytes(before)
    remove_newer_keys(resume, "WEIGHT_EPOCHS", "WEIGHT_TOLERANCE", "WEIGHT_MAX_STEPS")
    assert "2 of 6 epochs are done" in run(*settings, **MIX).output


def test_evaluation_builds_nothing_used_only_in_training(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither optimizers nor out-classes nor the loss, for any trainer that has them."""
    from cocoamix.run import optimisation
    from cocoamix.trainers import cocoamix as module

    def unwanted(*_: object) -> None:
        raise AssertionError("built for an evaluation")

    done = run(*BASE, "OPTIM.MAX_EPOCH", "1", name="trained", **MIX)
    for place, name in ((optimisation, "build_optimizer"), (module, "make_outclasses"), (module, "make_loss")):
        monkeypatch.setattr(place, name, unwanted)
    again = run("--eval-only", "--model-dir", str(done.folder), *BASE, name="again", **MIX)
    assert again.results["metrics"] == done.results["metrics"]
    with pytest.raises(AssertionError, match="built for an evaluation"):  # the names that a training calls
        run(*BASE, "OPTIM.MAX_EPOCH", "1", name="another", **MIX)
