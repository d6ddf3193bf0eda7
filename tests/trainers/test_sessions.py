"""Class-incremental runs: what sessions save and share, which images they read, resumes, evaluations, refusals."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cocoamix.features import images
from cocoamix.fscil.episodes import EpisodeSampler, EpisodeSize
from cocoamix.io import checkpoints
from cocoamix.trainers.fscil.fspt import FSPTModel
from cocoamix.trainers.fscil.loop import SessionTrainer
from tests.conftest import CLASSES, Run, Runner, epochs
from tests.trainers.kinds import (
    KINDS,
    SPLIT,
    equal,
    evaluate,
    session_state,
    watch_steps,
    watch_trainers,
)

# Ten classes: four base ones with six images each, then three sessions of two classes with two images each.
SHORT = [*SPLIT, "OPTIM.NAME", "adam", "OPTIM.MAX_EPOCH", "1", "FSCIL.WEIGHT_EPOCHS", "1"]
SHORT += ["FSCIL.BASE_WEIGHT_EPOCHS", "1", "TRAINER.COCOAMIX.STAGE", "two", "TRAINER.COCOAMIX.N_CTX", "2"]
LATER = [*SHORT, "FSCIL.LAST_SESSION", "1"]
MIX, COOP = {"trainer": "CoCoAMixFSCIL"}, {"trainer": "CoOpFSCIL"}
# SGD at a constant rate, for comparisons with torch's optimizer.
PLAIN = ["OPTIM.NAME", "sgd", "OPTIM.LR", "0.05", "OPTIM.WARMUP_EPOCH", "-1", "OPTIM.LR_SCHEDULER", "single_step"]


def train(run: Runner, kind: str, *settings: str, name: str = "run") -> Run:
    done = run(*KINDS[kind][1], *settings, trainer=KINDS[kind][0], name=name)
    assert done.status == 0, done.output[-800:]
    return done


def assert_same(one: Run, other: Run) -> None:
    """Compare two runs, of which one may have other images in its record."""
    for session in range(len(one.results["sessions"])):
        assert equal(session_state(one.folder, session), session_state(other.folder, session)), session
    for key in ("metrics", "sessions", "mean", "pd", "second_stages", "finished", "fingerprint"):
        assert one.results[key] == other.results[key], key
    assert epochs(one.folder) == epochs(other.folder)


def origin(folder: Path, session: int) -> dict[str, Any]:
    found: dict[str, Any] = checkpoints.load(folder / "sessions" / f"session-{session}.pth")["cocoamix"]
    return found


# ---------------------------------------------------------------------- what a run writes


def test_run_over_all_sessions(shared_run: Runner) -> None:
    done = shared_run(*SHORT, **MIX)
    saved = sorted((done.folder / "sessions").iterdir())
    assert [path.name for path in saved] == [f"session-{number}.pth" for number in range(4)]
    assert all(path.stat().st_size < 20_000 for path in saved)
    origins = [origin(done.folder, number) for number in range(4)]
    assert [each["classnames"] for each in origins] == [CLASSES[:4], CLASSES[4:6], CLASSES[6:8], CLASSES[8:]]
    assert not set(origins[0]["out_classes"]) & set(CLASSES)
    assert [each["out_classes"] for each in origins[1:]] == [CLASSES[:4], CLASSES[:6], CLASSES[:8]]
    results, sessions = done.results, done.results["sessions"]
    assert [each["images"] for each in sessions] == [16, 24, 32, 40]
    assert results["finished"]
    assert results["metrics"]["accuracy"] == sessions[-1]["accuracy"]
    assert results["metrics"]["mean_accuracy"] == results["mean"]
    assert results["metrics"]["pd"] == pytest.approx(sessions[0]["accuracy"] - sessions[-1]["accuracy"])
    assert (results["train_images"], results["evaluated_images"]) == (4 * 6 + 3 * 4, 40)
    assert results["protocol"]["fscil"] == {"base": 4, "way": 2, "shots": 2, "split": "random"}
    assert [each["ended"] for each in results["second_stages"]] == ["length"] * 4
    assert "forgetting after the last session: base" in done.output


def test_tuned_classes_and_batches(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """TUNED_CLASSES sets the names of a session's loss, BASE_BATCH_SIZE the steps of session 0 only."""
    labels = {"session": range(2), "seen": range(4, 6), "all": range(4, 6)}
    prints = set()
    for value, own in labels.items():
        with monkeypatch.context() as patch:
            steps = watch_steps(patch)
            more = ["FSCIL.TUNED_CLASSES", value, "FSCIL.BASE_BATCH_SIZE", "12"]
            done = run(*LATER, *more, name=value, **COOP)
        assert {int(label) for step in steps if step.session == 1 for label in step.labels} == set(own)
        assert [len(step.labels) for step in steps if step.session == 0] == [12, 12]
        names = {"session": CLASSES[4:6], "seen": CLASSES[:6], "all": CLASSES}[value]
        assert origin(done.folder, 1)["classnames"] == names
        assert [each["classes"] for each in done.results["sessions"]] == [4, 6]
        assert done.results["protocol"]["fscil"]["base_batch_size"] == 12
        again = evaluate(run, done, *LATER, name=f"{value}-again", **COOP)
        assert again.results["sessions"] == done.results["sessions"]
        assert again.results["fingerprint"] == done.results["fingerprint"]
        prints.add(done.results["fingerprint"])
    other = run(*SHORT, "FSCIL.TUNED_CLASSES", "all", "FSCIL.BASE_BATCH_SIZE", "6", name="all", **COOP)
    assert (other.status, "FSCIL.BASE_BATCH_SIZE" in other.output) == (2, True)
    first = [*LATER, "FSCIL.LAST_SESSION", "0", "DATALOADER.TRAIN_X.BATCH_SIZE", "3"]
    plain, named = (run(*first, *more, name=f"n{len(more)}", **MIX) for more in ([], ["FSCIL.BASE_BATCH_SIZE", "3"]))
    assert equal(session_state(plain.folder, 0), session_state(named.folder, 0))


@pytest.mark.parametrize(("kind", "mode"), [("CoCoAMix, sessions", "all"), ("FACT, sessions", "off")])
def test_images_of_earlier_sessions_are_never_read_again(
    run: Runner, monkeypatch: pytest.MonkeyPatch, kind: str, mode: str
) -> None:
    """Access to a session's training images fails once the next has started, and its features are released."""
    forbidden: set[str] = set()
    gone: list[bool] = []
    read, begin = images.read_identified, SessionTrainer.begin

    def strict_begin(self: Any, number: int) -> None:
        for earlier in self.sessions[:number]:
            forbidden.update(item.impath for item in earlier.train)
        last = weakref.ref(self.train_loader_x.dataset)
        begin(self, number)
        gc.collect()
        gone.append(last() is None)

    def strict_read(impath: str, upright: bool) -> Any:
        if impath in forbidden:
            raise OSError("an image of an earlier session")
        return read(impath, upright)

    monkeypatch.setattr(SessionTrainer, "begin", strict_begin)
    monkeypatch.setattr(images, "read_identified", strict_read)
    train(run, kind, "CACHE.MODE", mode)
    assert len(forbidden) == 24 + 2 * 4
    assert gone == [False, True, True, True]  # the first session is built with the trainer


def test_unreadable_images_do_not_count(run: Runner, data_root: Path) -> None:
    """Test images: neither as correct nor as images. A class without training images has no prototype."""
    place = data_root / "eurosat" / "2750"
    split = json.loads((data_root / "eurosat" / "split_zhou_EuroSAT.json").read_text())["test"]
    zero_shot = [*SPLIT, "DATASET.BAD_IMAGES", "skip"]
    for path in [path for path, label, _ in split if label == 4][:3]:
        (place / path).write_bytes(b"no image")
    done = run("--eval-only", *zero_shot, trainer="ZeroshotCLIPFSCIL")
    assert [each["images"] for each in done.results["sessions"]] == [16, 21, 29, 37]
    share = done.results["sessions"][1]["novel"] * 5 / 100  # five images are left
    assert share == pytest.approx(round(share))
    for file in (place / CLASSES[5].replace(" ", "")).glob("*.png"):
        if int(file.stem.rsplit("_", 1)[1]) < 6:
            file.write_bytes(b"not an image")
    gone = run(*KINDS["FACT, sessions"][1], "DATASET.BAD_IMAGES", "skip", trainer="FACTFSCIL", name="gone")
    assert (gone.status, repr(CLASSES[5]) in gone.output) == (2, True)


# ---------------------------------------------------------------------- resuming


def test_a_longer_run_continues_a_shorter_one_and_is_kept(run: Runner, shared_run: Runner) -> None:
    """LAST_SESSION may grow; earlier files stay as they are; a shorter run does not overwrite longer results."""
    short = shared_run(*LATER, **MIX)
    assert not short.results["finished"]
    before = {path.name: path.read_bytes() for path in (short.folder / "sessions").iterdir()}
    assert set(before) == {"session-0.pth", "session-1.pth"}
    whole = run(*SHORT, **MIX)
    assert "2 of 4 sessions are finished" in whole.output
    assert all((whole.folder / "sessions" / name).read_bytes() == content for name, content in before.items())
    assert_same(whole, shared_run(*SHORT, name="other", **MIX))
    assert whole.results["finished"]
    results = (whole.folder / "results.json").read_bytes()
    for again in (run(*LATER, **MIX), evaluate(run, whole, *LATER, name="run", **MIX)):
        assert again.status == 0
        assert "they are not overwritten" in again.output
    assert (whole.folder / "results.json").read_bytes() == results
    uniform = evaluate(run, whole, *LATER, "TRAINER.COCOAMIX.ENSEMBLE", "uniform", name="run", **MIX)
    assert len(uniform.results["sessions"]) == 2
    assert uniform.results["method"] == "CoCoA-Mix (uniform)"


def test_resuming_elsewhere_without_a_seed_or_a_file(run: Runner, shared_run: Runner, tmp_path: Path) -> None:
    first, whole = shared_run(*LATER, name="first", **MIX), shared_run(*SHORT, name="whole", **MIX)
    second = run("--resume", str(first.folder), *SHORT, name="second", **MIX)
    assert_same(second, whole)
    none = run("--resume", str(tmp_path), *SHORT, name="none", **MIX)
    assert (none.status, "--resume" in none.output) == (2, True)
    lost = second.folder / "sessions" / "session-3.pth"
    lost.unlink()  # the resume file has everything that the last session learned
    assert_same(run(*SHORT, name="second", **MIX), whole)
    drawn = run(*LATER, seed="-1", name="drawn", **MIX)
    more = run(*SHORT, seed="-1", name="drawn", **MIX)
    assert more.status == 0
    assert more.results["seed"] == drawn.results["seed"]


# ---------------------------------------------------------------------- methods


def test_other_mixtures_train_the_same_prompts(run: Runner, shared_run: Runner) -> None:
    """Training with uniform weights equals evaluating CoCoA-Mix's prompts with uniform weights."""
    coa = shared_run(*SHORT, name="coa", **MIX)
    for kind, title in (("uniform", "CoCoA-Mix (uniform)"), ("none", "CoCoA-Mix (own prompt alone)")):
        setting = ["TRAINER.COCOAMIX.ENSEMBLE", kind]
        trained = run(*SHORT, *setting, name=kind, **MIX)
        evaluated = evaluate(run, coa, *SHORT, *setting, name=f"{kind}-evaluated", **MIX)
        for session in range(4):
            own, theirs = (session_state(each.folder, session) for each in (trained, coa))
            assert own.keys() == {"prompt_learner.ctx"}
            assert torch.equal(own["prompt_learner.ctx"], theirs["prompt_learner.ctx"])
        assert trained.results["sessions"] == evaluated.results["sessions"]
        assert evaluated.results["method"] == title
        assert "second_stages" not in trained.results
    back = evaluate(run, trained, *SHORT, name="back", **MIX)
    assert (back.status, "TRAINER.COCOAMIX.ENSEMBLE" in back.output) == (2, True)
    tied = run(*LATER, "TRAINER.COCOAMIX.OUT_CLASSES", "none", name="tied", **MIX)
    assert set(session_state(tied.folder, 1)) == {"prompt_learner.ctx", "coa_weights.inside"}
    again = evaluate(run, tied, *LATER, name="again", **MIX)
    assert again.results["sessions"] == tied.results["sessions"]


def test_centring_is_stated_by_evaluations(run: Runner, shared_run: Runner) -> None:
    settings = [*LATER, "TRAINER.COCOAMIX.WEIGHT_LR", "5.0"]
    trained = shared_run(*settings, **MIX)
    centre = ["TRAINER.COCOAMIX.CENTRE", "True"]
    centred = evaluate(run, trained, *settings, *centre, name="centred", **MIX)
    assert centred.results["protocol"]["centred"]
    assert "centred" not in trained.results["protocol"]
    assert centred.results["fingerprint"] != trained.results["fingerprint"]
    # After session 0, all classes share one pi: nothing is centred, and nothing is reported.
    first = evaluate(run, trained, *settings, *centre, "FSCIL.LAST_SESSION", "0", name="first", **MIX)
    assert "centred" not in first.results["protocol"]
    whole = run(*settings, *centre, "FSCIL.LAST_SESSION", "2", name="whole", **MIX)
    shorter = run(*settings, *centre, "FSCIL.LAST_SESSION", "0", name="whole", **MIX)
    assert "they are not overwritten" in shorter.output
    assert len(whole.results["sessions"]) == 3


def test_one_context_is_trained_through_all_sessions(run: Runner, shared_run: Runner) -> None:
    done = shared_run(*SHORT, **COOP)
    contexts = [session_state(done.folder, session)["prompt_learner.ctx"] for session in range(4)]
    steps = [float((new - old).norm()) for old, new in pairwise(contexts)]
    assert all(0 < step < float(contexts[0].norm()) for step in steps)
    still = ["OPTIM.LR", "0.0", "OPTIM.WARMUP_EPOCH", "0", "OPTIM.WEIGHT_DECAY", "0.0"]
    fixed = run(*LATER, *still, name="fixed", **COOP)
    assert equal(session_state(fixed.folder, 0), session_state(fixed.folder, 1))


def test_a_pool_of_one_prompt_is_coop(run: Runner) -> None:
    """Its key is pulled towards the images, with no other effect."""
    l2p = "TRAINER.L2P"
    pool = [f"{l2p}.POOL_SIZE", "1", f"{l2p}.TOP_K", "1", f"{l2p}.LENGTH", "4", f"{l2p}.CLIP_NORM", "0.0"]
    one = train(run, "L2P, sessions", *PLAIN[:4], *pool, name="pool")
    coop = train(run, "CoOp, sessions", *PLAIN[:4], "TRAINER.COOP.N_CTX", "4", name="coop")
    for session in range(4):
        mine, theirs = session_state(one.folder, session), session_state(coop.folder, session)
        assert torch.equal(mine["prompt_learner.prompt"][0], theirs["prompt_learner.ctx"])
    assert one.results["sessions"] == coop.results["sessions"]


@pytest.mark.parametrize("mode", ["all", "off"])
def test_fspt_adapts_to_the_support_and_steps_on_the_query(
    run: Runner, data_root: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The images of each loop and step are those of the episode of seed, session and step, less unreadable ones."""
    for file in sorted((data_root / "eurosat" / "2750" / CLASSES[0].replace(" ", "")).glob("*_[0-3].png")):
        file.write_bytes(b"not an image")
    loops: list[Tensor] = []
    adapt = FSPTModel.adapt

    def watched(self: Any, features: Tensor, labels: Tensor, scaler: Any = None) -> None:
        loops.append(labels.clone())
        adapt(self, features, labels, scaler)

    monkeypatch.setattr(FSPTModel, "adapt", watched)
    steps, trainers = watch_steps(monkeypatch), watch_trainers(monkeypatch)
    more = ["FSCIL.LAST_SESSION", "1", "DATASET.BAD_IMAGES", "skip", "CACHE.MODE", mode]
    train(run, "FSPT, sessions", *more)
    ours = trainers[0]
    assert len(loops) == len(steps) == 5 + 3
    for number, (loop, step) in enumerate(zip(loops, steps, strict=True)):
        session, place = (0, number) if number < 5 else (1, number - 5)
        items, labels = ours.sessions[session].train, ours.sessions[session].labels
        sampler = EpisodeSampler(
            [item.label for item in items], EpisodeSize(2, 1 if session else 2, 2, 6), session, 5, 2
        )
        sampler.seed = 1  # of the run
        episode = sampler.draw(place)
        for shown, indices in ((loop, episode.support), (step.labels, episode.query)):
            readable = [items[index] for index in indices if items[index].impath not in ours.images.unreadable]
            assert shown.tolist() == [item.label - labels.start for item in readable]
    assert ours.images.unreadable


# ---------------------------------------------------------------------- refusals


MIXTURE = "TRAINER.COCOAMIX"
INVALID = {
    "CoCoAMix, sessions": [
        *("FSCIL.WAY 4", "FSCIL.SHOTS 0", "FSCIL.SHOTS 9", "FSCIL.SPLIT cec", "FSCIL.LAST_SESSION 4", "FSCIL.BASEE 4"),
        *("DATASET.SUBSAMPLE_CLASSES base", "DATASET.PARTITION random:2", "DATASET.NUM_SHOTS 4"),
        *("TEST.FINAL_MODEL best_val", f"{MIXTURE}.STAGE one", f"{MIXTURE}.DOMAIN in", f"{MIXTURE}.CALIBRATED True"),
        f"{MIXTURE}.WEIGHT_FIT heldout",
    ],
    "CoOp, sessions": ["TRAINER.COOP.ENSEMBLE uniform", "TRAINER.COOP.CSC True"],
    "L2P, sessions": ["TRAINER.L2P.TOP_K 5", "TRAINER.L2P.LENGTH 37"],
    "FSPT, sessions": ["FSCIL.BASE_BATCH_SIZE 12", "TRAINER.FSPT.INNER_LR 1e30"],
}


@pytest.mark.parametrize(("kind", "option"), [(kind, each) for kind, options in INVALID.items() for each in options])
def test_invalid_settings_are_refused(run: Runner, kind: str, option: str) -> None:
    key, value = option.split()
    done = run(*KINDS[kind][1], *(PLAIN if value == "1e30" else []), key, value, trainer=KINDS[kind][0])
    assert (done.status, key in done.output) == (2, True), done.output[-500:]


def test_files_of_other_runs_are_refused(run: Runner, shared_run: Runner) -> None:
    trained = shared_run(*SHORT, **MIX)
    pool = shared_run(*KINDS["L2P, sessions"][1], "FSCIL.LAST_SESSION", "0", trainer="L2PFSCIL", name="pool")
    gap = Path(shutil.copytree(trained.folder, trained.folder.with_name("gap")))
    (gap / "sessions" / "session-1.pth").unlink()
    visual = [*KINDS["L2P, sessions, visual"][1], "FSCIL.LAST_SESSION", "0"]
    model = ["--eval-only", "--model-dir", str(trained.folder)]
    cases: list[tuple[list[str], dict[str, str], str]] = [
        ([*model, *SHORT, "FSCIL.WAY", "3"], MIX, "sessions"),
        ([*model, *SHORT, "FSCIL.WAY", "1"], MIX, "session-1.pth"),
        ([*model, *SHORT], COOP, "CoCoAMixFSCIL"),
        ([*model, "--load-epoch", "3", *SHORT], MIX, "--load-epoch"),
        (["--eval-only", *SHORT], MIX, "--model-dir"),
        (["--eval-only", "--model-dir", str(trained.folder.parent), *SHORT], MIX, "sessions"),
        (["--eval-only", "--model-dir", str(pool.folder), *visual], {"trainer": "L2PFSCIL"}, "TRAINER.L2P.POOL"),
        (["--resume", str(trained.folder), *SHORT, "TRAINER.COCOAMIX.W", "2.0"], MIX, "TRAINER.COCOAMIX.W"),
        (["--resume", str(gap), *SHORT], MIX, "session-1.pth"),
    ]
    for number, (extra, trainer, word) in enumerate(cases):
        done = run(*extra, name=f"case{number}", **trainer)
        assert (done.status, word in done.output) == (2, True), (number, done.output[-500:])


def test_altered_files_are_refused(run: Runner, shared_run: Runner) -> None:
    """In an evaluation and when resuming; files with other names are ignored. The fuzzer alters more."""
    trained = shared_run(*SHORT, **MIX)
    path = trained.folder / "sessions" / "session-2.pth"
    for name in ("session-x.pth", "session-04.pth"):
        (path.parent / name).write_bytes(b"")
    good, content = path.read_bytes(), checkpoints.load(path)
    known, state = content["cocoamix"], content["models"]
    changes: list[dict[str, Any]] = [
        {"session": 3},
        {"models": {**state, "coa_weights": {"inside": torch.zeros(2)}}},
        {"cocoamix": {**known, "seed": 2}},
        {"cocoamix": {**known, "settings": {**known["settings"], "TRAINER.COCOAMIX.TEMPLATE": "{}."}}},
    ]
    for number, change in enumerate(changes):
        checkpoints.save(path, {**content, **change})
        done = evaluate(run, trained, *SHORT, name=f"case{number}", **MIX)
        assert done.status == 2, (change, done.output[-500:])
        assert "session" in done.output
        assert "Traceback" not in done.output
        if number % 4 == 0:
            assert run(*SHORT, **MIX).status == 2
        path.write_bytes(good)
    assert run(*SHORT, **MIX).status == 0
