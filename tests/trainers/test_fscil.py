"""Class-incremental runs end to end: sessions, what they keep, what they never read again, kills, evaluations."""

from __future__ import annotations

import gc
import json
import re
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from cocoamix import checkpoints, curves, files, images
from cocoamix.fscil import session_owners
from cocoamix.mixture import class_weights, mix
from cocoamix.prompts import PromptLearner
from tests.conftest import CLASSES, Run, Runner
from tests.trainers.test_resume import Killed

# Ten classes: four base ones with six images each, then three sessions of two classes with two images each.
CUT = ["FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2"]
SETTINGS = [
    *CUT,
    "OPTIM.NAME",
    "adam",
    "OPTIM.MAX_EPOCH",
    "2",
    "FSCIL.WEIGHT_EPOCHS",
    "3",
    "FSCIL.BASE_WEIGHT_EPOCHS",
    "2",
]
SETTINGS += ["TRAINER.COCOAMIX.STAGE", "two", "TRAINER.COCOAMIX.N_CTX", "2"]
MIX, COOP, CLIP = ({"trainer": name} for name in ("CoCoAMixFSCIL", "CoOpFSCIL", "ZeroshotCLIPFSCIL"))


@pytest.fixture(autouse=True)
def plots(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Plots that would be drawn; drawing itself is tested elsewhere."""
    paths: list[Path] = []
    monkeypatch.setattr(curves, "try_to_draw", lambda runs, path: paths.append(path))
    return paths


def kept(folder: Path, session: int) -> dict[str, Any]:
    return checkpoints.load(folder / "sessions" / f"session-{session}.pth")


def tensors(folder: Path, session: int) -> dict[str, torch.Tensor]:
    models = kept(folder, session)["models"]
    return {f"{model}.{key}": value for model, state in models.items() for key, value in state.items()}


def told(run: Run) -> dict[str, Any]:
    return json.loads((run.folder / "fscil.json").read_text())  # type: ignore[no-any-return]


def assert_same(one: Run, other: Run, sessions: int = 4) -> None:
    for session in range(sessions):
        first, second = tensors(one.folder, session), tensors(other.folder, session)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first), session
    assert told(one) == told(other)
    assert one.results["metrics"] == other.results["metrics"]


def test_all_sessions(run: Runner, plots: list[Path]) -> None:
    done = run(*SETTINGS, **MIX)
    assert done.status == 0, done.output[-800:]
    files = sorted(path.name for path in (done.folder / "sessions").iterdir())
    assert files == [f"session-{n}.pth" for n in range(4)]
    assert all((done.folder / "sessions" / name).stat().st_size < 20_000 for name in files)
    assert [set(tensors(done.folder, n)) for n in range(4)] == [
        {"prompt_learner.ctx", "coa_weights.inside", "coa_weights.outside"}
    ] * 4
    names = [kept(done.folder, n)["cocoamix"] for n in range(4)]
    assert [one["classnames"] for one in names] == [CLASSES[:4], CLASSES[4:6], CLASSES[6:8], CLASSES[8:]]
    assert len(names[0]["out_classes"]) == 4
    assert not set(names[0]["out_classes"]) & set(CLASSES)
    assert [one["out_classes"] for one in names[1:]] == [CLASSES[:4], CLASSES[:6], CLASSES[:8]]
    assert [kept(done.folder, n)["epoch"] for n in range(4)] == [4, 5, 5, 5]  # prompt, then weights
    contexts = [tensors(done.folder, n)["prompt_learner.ctx"] for n in range(4)]
    assert all(one.shape == (2, 128) for one in contexts)
    assert len({float(one.sum()) for one in contexts}) == 4
    report = told(done)
    assert [one["classes"] for one in report["sessions"]] == [4, 6, 8, 10]
    assert [one["images"] for one in report["sessions"]] == [16, 24, 32, 40]
    assert report["finished"]
    metrics = done.results["metrics"]
    assert metrics["accuracy"] == report["sessions"][-1]["accuracy"]
    assert metrics["mean_accuracy"] == report["mean"]
    assert done.results["train_images"] == 4 * 6 + 3 * 4
    assert done.results["evaluated_images"] == 40
    assert done.results["protocol"]["fscil"] == {"base": 4, "way": 2, "shots": 2, "split": "random"}
    # What parsers of logs read last is the accuracy after the last session.
    shown = re.findall(r"\* accuracy: ([\d.]+)%", done.output.split("Finish training")[1])
    assert float(shown[-1]) == pytest.approx(metrics["accuracy"], abs=0.005)
    for extension in ("txt", "csv"):
        assert (done.folder / f"fscil.{extension}").is_file()
    assert plots == [done.folder / "fscil.png"]


def test_the_mixture_by_another_path(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits of the last session from its files: every prompt on all classes at once, then the mixture."""
    from cocoamix.trainers.fscil import CoCoAMixFSCIL

    seen: list[Any] = []
    original = CoCoAMixFSCIL.test
    monkeypatch.setattr(CoCoAMixFSCIL, "test", lambda self, split=None: (seen.append(self), original(self, split))[1])
    done = run(*SETTINGS, "TRAINER.COCOAMIX.WEIGHT_LR", "5.0", **MIX)  # so that the weights differ
    trainer = seen[-1]
    similar, pairs = [], []
    draw = torch.randn(7, 128, generator=torch.Generator().manual_seed(0))
    similar.append(draw @ trainer.clip.encode_classes(CLASSES, ["a photo of a {}."]).t())
    for session in range(4):
        state = tensors(done.folder, session)
        learner = PromptLearner(trainer.backbones[0], CLASSES, n_ctx=2)
        learner.ctx.data.copy_(state["prompt_learner.ctx"])
        similar.append(draw @ trainer.backbones[0].encode_prompts(learner()).detach().t())
        pairs.append((state["coa_weights.inside"], state["coa_weights.outside"]))
    inside, outside = (torch.cat(side) for side in zip(*pairs, strict=True))
    assert len({round(float(x), 6) for x in (*inside, *outside)}) == 8
    wanted = mix(torch.stack(similar), class_weights(inside, outside, session_owners([4, 2, 2, 2])))
    assert torch.allclose(draw @ trainer.classifier(3).t(), wanted, atol=1e-4)
    for session in range(4):
        sums = trainer.mixture_weights(session).sum(dim=0)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-6)


def test_a_new_session_changes_nothing_of_earlier_ones(run: Runner) -> None:
    first = run(*SETTINGS, "FSCIL.LAST_SESSION", "1", **MIX)
    assert len(told(first)["sessions"]) == 2
    before = {path.name: path.read_bytes() for path in (first.folder / "sessions").iterdir()}
    assert set(before) == {"session-0.pth", "session-1.pth"}
    whole = run(*SETTINGS, **MIX)
    assert "2 of 4 sessions are finished" in whole.output
    for name, content in before.items():
        assert (whole.folder / "sessions" / name).read_bytes() == content
    assert_same(run(*SETTINGS, name="other", **MIX), whole)


def test_images_of_earlier_sessions_are_never_read_again(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each session's training images are refused once the next has begun, and its features are let go."""
    from cocoamix.trainers.fscil import CoCoAMixFSCIL

    forbidden: set[str] = set()
    gone: list[Any] = []
    read, begin = images.read_image, CoCoAMixFSCIL.begin

    def strict_begin(self: Any, number: int) -> None:
        for earlier in self.sessions[:number]:
            forbidden.update(item.impath for item in earlier.train)
        last = weakref.ref(self.train_loader_x.dataset)
        begin(self, number)
        gc.collect()
        gone.append(last() is None)

    def strict_read(impath: str) -> Any:
        if impath in forbidden:
            raise OSError("an image of an earlier session")
        return read(impath)

    monkeypatch.setattr(CoCoAMixFSCIL, "begin", strict_begin)
    monkeypatch.setattr(images, "read_image", strict_read)
    for mode in ("off", "all"):
        forbidden.clear()
        done = run(*SETTINGS, "CACHE.MODE", mode, name=mode, **MIX)
        assert done.status == 0, done.output[-500:]
        assert len(forbidden) == 24 + 2 * 4
    assert gone == [True] * 8


@pytest.mark.parametrize(("session", "epoch"), [(0, 1), (2, 1), (2, 4)])
def test_killed_and_resumed(run: Runner, monkeypatch: pytest.MonkeyPatch, session: int, epoch: int) -> None:
    from cocoamix.trainers.fscil import CoCoAMixFSCIL

    before_epoch = CoCoAMixFSCIL.before_epoch

    def stop(self: Any) -> None:
        if (self.session, self.epoch) == (session, epoch):
            raise KeyboardInterrupt
        before_epoch(self)

    with monkeypatch.context() as patch:
        patch.setattr(CoCoAMixFSCIL, "before_epoch", stop)
        assert run(*SETTINGS, **MIX).status == 130
    resumed = run(*SETTINGS, **MIX)
    assert f"** Session {session} of 3" in resumed.output
    assert session == 0 or f"** Session {session - 1} of 3" not in resumed.output
    if epoch:
        assert f"in session {session}, {epoch} of" in resumed.output
    assert_same(run(*SETTINGS, name="whole", **MIX), resumed)


MOMENTS = [("resume.pth", False), ("session-2.pth", False), ("session-2.pth", True), ("fscil.csv", True)]


def test_killed_between_two_files(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """In session 2, before or after the first writing of a file."""
    settings = [*SETTINGS, "OPTIM.MAX_EPOCH", "1", "FSCIL.WEIGHT_EPOCHS", "1", "FSCIL.BASE_WEIGHT_EPOCHS", "1"]
    whole = run(*settings, name="whole", **MIX)
    begun = run(*settings, "FSCIL.LAST_SESSION", "1", name="begun", **MIX)
    replace = files.os.replace
    for number, (name, after) in enumerate(MOMENTS):

        def killing(source: Any, target: Any, *, name: str = name, after: bool = after) -> None:
            if Path(target).name != name:
                replace(source, target)
                return
            if after:
                replace(source, target)
            raise Killed

        folder = begun.folder.parent / f"killed{number}"
        shutil.copytree(begun.folder, folder)
        with monkeypatch.context() as patch:
            patch.setattr(files.os, "replace", killing)
            with pytest.raises(Killed):
                run(*settings, name=folder.name, **MIX)
        assert (folder / "sessions" / "session-2.pth").is_file() == (number > 1)
        assert_same(whole, run(*settings, name=folder.name, **MIX))


def test_without_a_seed(run: Runner) -> None:
    first = run(*SETTINGS, "FSCIL.LAST_SESSION", "1", seed="-1", **MIX)
    second = run(*SETTINGS, seed="-1", **MIX)
    assert second.status == 0, second.output[-500:]
    assert first.results["seed"] == second.results["seed"]
    assert "2 of 4 sessions are finished" in second.output


def test_going_on_elsewhere(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run(*SETTINGS, "FSCIL.LAST_SESSION", "1", name="first", **MIX)
    second = run("--resume", str(first.folder), *SETTINGS, name="second", **MIX)
    assert_same(run(*SETTINGS, name="whole", **MIX), second)
    none = run("--resume", str(first.folder.parent / "data"), *SETTINGS, name="third", **MIX)
    assert none.status == 2
    assert "holds neither resume.pth nor finished sessions" in none.output


def test_evaluation_after_any_session(run: Runner) -> None:
    trained = run(*SETTINGS, **MIX)
    wanted = told(trained)["sessions"]
    for last in (0, 2, -1):
        extra = ["--eval-only", "--model-dir", str(trained.folder), *SETTINGS, "FSCIL.LAST_SESSION", str(last)]
        done = run(*extra, name=f"test{last}", **MIX)
        assert done.status == 0, done.output[-500:]
        assert told(done)["sessions"] == wanted[: last + 1 or None]
    other = run(
        "--eval-only", "--model-dir", str(trained.folder), *SETTINGS, "TRAINER.COCOAMIX.ENSEMBLE", "uniform", **MIX
    )
    assert told(other)["method"] == "CoCoA-Mix (uniform)"


def test_other_mixtures_train_the_same_prompts(run: Runner) -> None:
    """Uniform weights, trained by themselves, are the evaluation of CoCoA-Mix's prompts with uniform weights."""
    coa = run(*SETTINGS, name="coa", **MIX)
    for kind in ("uniform", "none"):
        setting = ["TRAINER.COCOAMIX.ENSEMBLE", kind]
        trained = run(*SETTINGS, *setting, name=kind, **MIX)
        evaluated = run(
            "--eval-only", "--model-dir", str(coa.folder), *SETTINGS, *setting, name=f"{kind}-evaluated", **MIX
        )
        for session in range(4):
            assert set(tensors(trained.folder, session)) == {"prompt_learner.ctx"}
            one, other = (tensors(run.folder, session)["prompt_learner.ctx"] for run in (trained, coa))
            assert torch.equal(one, other)
        assert told(trained)["sessions"] == told(evaluated)["sessions"]
        assert (
            told(evaluated)["method"]
            == {"uniform": "CoCoA-Mix (uniform)", "none": "CoCoA-Mix (own prompt alone)"}[kind]
        )
    back = run("--eval-only", "--model-dir", str(trained.folder), *SETTINGS, name="back", **MIX)
    assert back.status == 2
    assert "has no weights" in back.output


def test_several_backbones(run: Runner) -> None:
    """Two of the same model are the one model, session by session."""
    two = [
        "TRAINER.COCOAMIX.BACKBONES",
        '["tiny", "tiny"]',
        "TRAINER.COCOAMIX.BACKBONE_WEIGHTS",
        '["random", "random"]',
    ]
    short = [*SETTINGS, "FSCIL.LAST_SESSION", "1", "OPTIM.LR", "0.0", "OPTIM.WARMUP_EPOCH", "0"]
    done = [run(*short, *extra, name=name, **MIX) for name, extra in (("one", []), ("two", two))]
    assert done[1].status == 0, done[1].output[-500:]
    assert set(tensors(done[1].folder, 1)) == {f"prompt_learner.{n}.ctx" for n in (0, 1)} | {
        "coa_weights.inside",
        "coa_weights.outside",
    }
    assert told(done[0])["sessions"] == told(done[1])["sessions"]
    contexts = [tensors(done[0].folder, session)["prompt_learner.ctx"] for session in (0, 1)]
    assert not torch.equal(*contexts)  # each session's starts from a draw of its own


def test_zero_shot(run: Runner) -> None:
    """After the last session it is CLIP on all classes, by another trainer; and there is nothing to train."""
    done = run(*CUT, **CLIP)
    assert done.status == 0, done.output[-500:]
    plain = run("--eval-only", name="plain", trainer="ZeroshotCLIP")
    assert done.results["metrics"]["accuracy"] == plain.results["metrics"]["accuracy"]
    assert told(run("--eval-only", *CUT, name="evaluated", **CLIP))["sessions"] == told(done)["sessions"]
    assert not (done.folder / "sessions").exists()


def test_one_context_through_the_sessions(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    still = ["OPTIM.LR", "0.0", "OPTIM.WARMUP_EPOCH", "0", "OPTIM.WEIGHT_DECAY", "0.0"]
    fixed = run(*SETTINGS, *still, name="still", **COOP)
    assert fixed.status == 0, fixed.output[-500:]
    contexts = [tensors(fixed.folder, session)["prompt_learner.ctx"] for session in range(4)]
    assert all(torch.equal(contexts[0], one) for one in contexts)
    moving = run(*SETTINGS, name="moving", **COOP)
    contexts = [tensors(moving.folder, session)["prompt_learner.ctx"] for session in range(4)]
    steps = [float((one - other).norm()) for one, other in zip(contexts[1:], contexts, strict=False)]
    assert all(0 < step < float(contexts[0].norm()) for step in steps)
    seen = run(*SETTINGS, "FSCIL.TUNED_CLASSES", "seen", name="seen", **COOP)
    assert torch.equal(tensors(seen.folder, 0)["prompt_learner.ctx"], contexts[0])
    assert not torch.equal(tensors(seen.folder, 1)["prompt_learner.ctx"], contexts[1])
    assert kept(seen.folder, 1)["cocoamix"]["classnames"] == CLASSES[:6]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["FSCIL.WAY", "4"], "cannot be cut"),
        (["FSCIL.SHOTS", "0"], "FSCIL.SHOTS is 0; it must be at least 1"),
        (["FSCIL.SHOTS", "9"], "FSCIL.SHOTS is 9, but the class"),
        (["FSCIL.SPLIT", "cec"], "no images of EuroSAT are published"),
        (["FSCIL.LAST_SESSION", "4"], "has the sessions 0 to 3"),
        (["FSCIL.BASEE", "4"], "no configuration key"),
        (["DATASET.SUBSAMPLE_CLASSES", "base"], "sessions are cut from all classes"),
        (["TEST.FINAL_MODEL", "best_val"], "evaluated after their last epoch"),
        (["TRAINER.COCOAMIX.STAGE", "one"], "use STAGE two"),
        (["TRAINER.COCOAMIX.DOMAIN", "in"], "use auto"),
    ],
)
def test_refusals(run: Runner, extra: list[str], message: str) -> None:
    done = run(*SETTINGS, *extra, **MIX)
    assert done.status == 2
    assert message in done.output


def test_refuses_files_of_other_runs(run: Runner) -> None:
    trained = run(*SETTINGS, **MIX)
    model = ["--eval-only", "--model-dir", str(trained.folder)]
    cases = [
        ([*model, *SETTINGS, "FSCIL.WAY", "3"], MIX, "holds 4 sessions, but this run has 3"),
        ([*model, *SETTINGS, "FSCIL.WAY", "1"], MIX, "its classnames is"),
        ([*model, *SETTINGS], COOP, "its trainer is 'CoCoAMixFSCIL'"),
        ([*model, "--load-epoch", "3", *SETTINGS], MIX, "use FSCIL.LAST_SESSION"),
        (["--eval-only", *SETTINGS], MIX, "needs --model-dir"),
        (["--eval-only", "--model-dir", str(trained.folder.parent), *SETTINGS], MIX, "nothing to evaluate"),
    ]
    for number, (extra, trainer, message) in enumerate(cases):
        done = run(*extra, name=f"case{number}", **trainer)
        assert done.status == 2
        assert message in done.output
    changed = run(*SETTINGS, "TRAINER.COCOAMIX.W", "2.0", **MIX)
    assert changed.status == 2
    assert "TRAINER.COCOAMIX.W was 5.0 and is 2.0" in changed.output
    (trained.folder / "sessions" / "session-1.pth").unlink()
    gap = run(*SETTINGS, **MIX)
    assert gap.status == 2
    assert "session-1.pth is missing" in gap.output
