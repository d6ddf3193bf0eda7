"""Class-incremental runs end to end: sessions, what they save, what they never read again, kills, evaluations."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from cocoamix.coa.mixture import class_weights, mix
from cocoamix.features import images
from cocoamix.fscil.mixture import session_owners
from cocoamix.io import checkpoints, files
from cocoamix.prompts.context import PromptLearner
from tests.conftest import CLASSES, ROOT, Run, Runner, epochs
from tests.trainers.test_cocoamix import remove_newer_keys
from tests.trainers.test_resume import Killed

# Ten classes: four base ones with six images each, then three sessions of two classes with two images each.
SPLIT = ["FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2"]
SETTINGS = [
    *SPLIT,
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
SHORT = [*SETTINGS, "OPTIM.MAX_EPOCH", "1", "FSCIL.WEIGHT_EPOCHS", "1", "FSCIL.BASE_WEIGHT_EPOCHS", "1"]
MIX, COOP, CLIP = ({"trainer": name} for name in ("CoCoAMixFSCIL", "CoOpFSCIL", "ZeroshotCLIPFSCIL"))


def kept(folder: Path, session: int) -> dict[str, Any]:
    return checkpoints.load(folder / "sessions" / f"session-{session}.pth")


def tensors(folder: Path, session: int) -> dict[str, torch.Tensor]:
    models = kept(folder, session)["models"]
    return {f"{model}.{key}": value for model, state in models.items() for key, value in state.items()}


SESSION_KEYS = ("method", "dataset", "seed", "fingerprint", "finished", "sessions", "mean", "pd", "second_stages")


def session_results(run: Run) -> dict[str, Any]:
    """Return the part of the results that describes the sessions."""
    return {key: value for key, value in run.results.items() if key in SESSION_KEYS}


def assert_same(one: Run, other: Run, sessions: int = 4) -> None:
    for session in range(sessions):
        first, second = tensors(one.folder, session), tensors(other.folder, session)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first), session
    assert session_results(one) == session_results(other)
    assert one.results["metrics"] == other.results["metrics"]
    assert epochs(one.folder) == epochs(other.folder)


def test_run_over_all_sessions_saves_each(shared_run: Runner) -> None:
    done = shared_run(*SETTINGS, **MIX)
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
    report = session_results(done)
    assert [one["classes"] for one in report["sessions"]] == [4, 6, 8, 10]
    assert [one["images"] for one in report["sessions"]] == [16, 24, 32, 40]
    assert report["finished"]
    metrics = done.results["metrics"]
    assert metrics["accuracy"] == report["sessions"][-1]["accuracy"]
    assert metrics["mean_accuracy"] == report["mean"]
    assert done.results["train_images"] == 4 * 6 + 3 * 4
    assert done.results["evaluated_images"] == 40
    assert done.results["protocol"]["fscil"] == {"base": 4, "way": 2, "shots": 2, "split": "random"}
    # The last value that log parsers read is the accuracy after the last session.
    shown = re.findall(r"\* accuracy: ([\d.]+)%", done.output.split("Finish training")[1])
    assert float(shown[-1]) == pytest.approx(metrics["accuracy"], abs=0.005)
    # The table is in the log; the content of results.json is in no second file.
    assert "forgetting after the last session: base" in done.output
    assert not list(done.folder.glob("fscil*"))


def test_mixture_matches_independent_calculation(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits of the last session, recomputed from its files: every prompt on all classes, then the mixture."""
    from cocoamix.trainers.fscil.methods import CoCoAMixFSCIL

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
        learner = PromptLearner(trainer.clip.each()[0], CLASSES, n_ctx=2)
        learner.ctx.data.copy_(state["prompt_learner.ctx"])
        similar.append(draw @ trainer.clip.each()[0].encode_prompts(learner()).detach().t())
        pairs.append((state["coa_weights.inside"], state["coa_weights.outside"]))
    inside, outside = (torch.cat(side) for side in zip(*pairs, strict=True))
    assert len({round(float(x), 6) for x in (*inside, *outside)}) == 8
    wanted = mix(torch.stack(similar), class_weights(inside, outside, session_owners([4, 2, 2, 2])))
    assert torch.allclose(draw @ trainer.classifier(3).t(), wanted, atol=1e-4)
    for session in range(4):
        sums = trainer.mixture_weights(session).sum(dim=0)
        assert torch.allclose(sums, torch.ones_like(sums), atol=1e-6)


def test_centring_applies_after_session_0(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Session 0 has one weight for all and is unchanged; later ones are centred per prompt, as their images see it."""
    from cocoamix.trainers.fscil.methods import CoCoAMixFSCIL

    seen: list[Any] = []
    original = CoCoAMixFSCIL.test
    monkeypatch.setattr(CoCoAMixFSCIL, "test", lambda self, split=None: (seen.append(self), original(self, split))[1])
    settings = [*SHORT, "FSCIL.LAST_SESSION", "2", "TRAINER.COCOAMIX.WEIGHT_LR", "5.0"]
    trained = run(*settings, **MIX)
    centre = ["TRAINER.COCOAMIX.CENTRE", "True"]
    centred = run("--eval-only", "--model-dir", str(trained.folder), *settings, *centre, name="centred", **MIX)
    assert centred.status == 0, centred.output[-500:]
    off, on = seen[-2:]
    assert on.settings.CENTRE != off.settings.CENTRE
    assert torch.equal(off.classifier(0), on.classifier(0))
    draw = torch.nn.functional.normalize(torch.randn(7, 128, generator=torch.Generator().manual_seed(0)), dim=1)
    blocks = [[on.block_features(prompt, block) for block in range(3)] for prompt in range(4)]
    similar = torch.stack([draw @ torch.cat(one).t() for one in blocks]).double()
    pi = on.mixture_weights(2).double()
    wanted = ((similar - similar.mean(dim=2, keepdim=True)) * pi[:, None]).sum(dim=0)
    torch.testing.assert_close((draw @ on.classifier(2).t()).double(), wanted, rtol=1e-3, atol=1e-5)
    assert not torch.allclose((draw @ off.classifier(2).t()).double(), wanted, atol=1e-3)
    assert centred.results["protocol"]["centred"]
    assert "centred" not in trained.results["protocol"]
    assert centred.results["fingerprint"] != trained.results["fingerprint"]
    assert "CENTRE is" not in centred.output
    uniform = [*settings, *centre, "TRAINER.COCOAMIX.ENSEMBLE", "uniform"]
    same = run("--eval-only", "--model-dir", str(trained.folder), *uniform, name="uniform", **MIX)
    assert "centred" not in same.results["protocol"]
    # After session 0 only, all classes share one pi: nothing is centred, and nothing is reported.
    first = ["--eval-only", "--model-dir", str(trained.folder), *settings, "FSCIL.LAST_SESSION", "0"]
    plain, asked = (run(*first, *extra, name=f"first{len(extra)}", **MIX) for extra in ([], centre))
    assert "centred" not in asked.results["protocol"]
    assert asked.results["fingerprint"] == plain.results["fingerprint"]
    assert asked.results["metrics"] == plain.results["metrics"]


def test_centring_if_own_and_other_classes_have_equal_weights(run: Runner) -> None:
    """Without out-classes a prompt has one weight, shared by all classes in every session."""
    tied = [*SHORT, "FSCIL.LAST_SESSION", "1", "TRAINER.COCOAMIX.WEIGHT_LR", "5.0", "TRAINER.COCOAMIX.CENTRE", "True"]
    done = run(*tied, "TRAINER.COCOAMIX.OUT_CLASSES", "none", **MIX)
    assert done.status == 0, done.output[-500:]
    assert "centred" not in done.results["protocol"]


def test_sessions_of_a_centred_run_belong_together(run: Runner) -> None:
    """Centring is recorded for evaluations; older versions recorded it per session, too. The longer report is kept."""
    settings = [*SHORT, "TRAINER.COCOAMIX.WEIGHT_LR", "5.0", "TRAINER.COCOAMIX.CENTRE", "True"]
    folder = run(*settings, "FSCIL.LAST_SESSION", "1", **MIX).folder
    for session in (0, 1):
        content = kept(folder, session)
        assert "centred" not in content["cocoamix"]["protocol"]
        content["cocoamix"]["protocol"]["centred"] = True
        checkpoints.save(folder / "sessions" / f"session-{session}.pth", content)
    whole = run(*settings, **MIX)
    assert whole.status == 0, whole.output[-500:]
    assert whole.results["protocol"]["centred"]
    assert "All sessions up to 3 are finished" in run(*settings, **MIX).output
    shorter = run(*settings, "FSCIL.LAST_SESSION", "0", **MIX)
    assert "cover 4 sessions of this run; they are not overwritten" in shorter.output
    assert len(session_results(whole)["sessions"]) == 4


def test_without_learned_weights_there_is_no_second_stage(run: Runner) -> None:
    uniform = [*SHORT, "FSCIL.LAST_SESSION", "1", "TRAINER.COCOAMIX.ENSEMBLE", "uniform"]
    done = run(*uniform, **MIX)
    assert done.status == 0, done.output[-500:]
    assert "second_stages" not in done.results


def test_sessions_without_newer_keys_resume(run: Runner) -> None:
    """Without a second stage: resuming mixes sessions with and without the keys, and they belong to one run."""
    uniform = [*SHORT, "TRAINER.COCOAMIX.ENSEMBLE", "uniform"]
    whole = run(*uniform, name="whole", **MIX)
    folder = run(*uniform, "FSCIL.LAST_SESSION", "1", **MIX).folder
    for path in (folder / "resume.pth", *(folder / "sessions").iterdir()):
        remove_newer_keys(path)
    resumed = run(*uniform, "FSCIL.LAST_SESSION", "2", **MIX)
    assert "2 of 4 sessions are finished" in resumed.output
    resumed = run(*uniform, **MIX)
    assert "3 of 4 sessions are finished" in resumed.output
    assert_same(whole, resumed)
    evaluated = run("--eval-only", "--model-dir", str(folder), *uniform, name="evaluated", **MIX)
    assert evaluated.results["metrics"] == whole.results["metrics"]


def test_weight_step_matches_independent_calculation(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both losses of the weights in session 2, from the files of earlier sessions and its prompt at that time."""
    from cocoamix.trainers.fscil.methods import CoCoAMixFSCIL

    steps: list[tuple[Any, ...]] = []
    original = CoCoAMixFSCIL.compute_loss

    def watched(self: Any, features: torch.Tensor, labels: torch.Tensor) -> Any:
        weights = {name: value.detach().clone() for name, value in self.weights.named_parameters()}
        terms, logits = original(self, features, labels)
        if self.session == 2 and self.phase == "weights":
            context = self.prompt_learner.ctx.detach().clone()
            steps.append((self, features, labels, context, weights, terms["mix"].item(), terms["ent"].item()))
        return terms, logits

    monkeypatch.setattr(CoCoAMixFSCIL, "compute_loss", watched)
    settings = ["TRAINER.COCOAMIX.WEIGHT_LR", "0.03", "TRAINER.COCOAMIX.MARGIN", "0.6", "FSCIL.LAST_SESSION", "2"]
    done = run(*SETTINGS, *settings, **MIX)
    assert done.status == 0, done.output[-500:]
    trainer, features, labels, context, weights, mixed, entropy = steps[-1]
    own, earlier = CLASSES[6:8], CLASSES[:6]
    kept_states = [tensors(done.folder, session) for session in (0, 1)]
    contexts = [state["prompt_learner.ctx"] for state in kept_states] + [context]

    def similar(number: int, names: list[str]) -> torch.Tensor:
        if number == 0:
            return features @ trainer.clip.encode_classes(names, ["a photo of a {}."]).t()
        learner = PromptLearner(trainer.clip.each()[0], names, n_ctx=2)
        learner.ctx.data.copy_(contexts[number - 1])
        return features @ trainer.clip.each()[0].encode_prompts(learner()).detach().t()

    scale = trainer.clip.logit_scale
    outside = torch.cat([state["coa_weights.outside"] for state in kept_states])
    # Own classes: the new prompt's pi^in, pi^out of the others, 1 for the hand-crafted one.
    pi = torch.cat([torch.zeros(1), outside, weights["inside"]]).exp()
    pi = pi / pi.sum()
    assert len({round(float(share), 4) for share in pi}) == 4
    assert pi.min() > 0.02
    logits = scale * torch.stack([share * similar(number, own) for number, share in enumerate(pi)]).sum(dim=0)
    assert mixed == pytest.approx(float(torch.nn.functional.cross_entropy(logits, labels)), abs=1e-4)
    # Out-classes belong to no session: pi^out of all.
    pi = torch.cat([torch.zeros(1), outside, weights["outside"]]).exp()
    pi = pi / pi.sum()
    sure = [(scale * pi[n] * similar(n, earlier)).softmax(dim=-1) for n in (0, 3)]
    first, last = (-(p * p.log()).sum(dim=-1) / math.log(6) for p in sure)
    wanted = (first - last + 0.6).clamp_min(0)
    assert (wanted > 0).all()
    assert entropy == pytest.approx(float(wanted.mean()), abs=1e-4)


def test_without_out_classes_there_is_one_weight(run: Runner) -> None:
    """There is one weight, also used for other classes; an evaluation reports that by itself."""
    done = run(*SETTINGS, "TRAINER.COCOAMIX.WEIGHT_LR", "5.0", "TRAINER.COCOAMIX.OUT_CLASSES", "none", **MIX)
    assert done.status == 0, done.output[-500:]
    assert set(tensors(done.folder, 2)) == {"prompt_learner.ctx", "coa_weights.inside"}
    again = run("--eval-only", "--model-dir", str(done.folder), *SETTINGS, name="again", **MIX)
    assert again.status == 0, again.output[-500:]
    assert "TRAINER.COCOAMIX.OUT_CLASSES is 'none' as in training" in again.output
    assert session_results(again)["sessions"] == session_results(done)["sessions"]
    assert again.results["config"]["TRAINER"]["COCOAMIX"]["OUT_CLASSES"] == "none"


def test_a_new_session_does_not_change_earlier_ones(run: Runner, shared_run: Runner) -> None:
    first = shared_run(*SETTINGS, "FSCIL.LAST_SESSION", "1", **MIX)
    assert len(session_results(first)["sessions"]) == 2
    before = {path.name: path.read_bytes() for path in (first.folder / "sessions").iterdir()}
    assert set(before) == {"session-0.pth", "session-1.pth"}
    whole = run(*SETTINGS, **MIX)
    assert "2 of 4 sessions are finished" in whole.output
    for name, content in before.items():
        assert (whole.folder / "sessions" / name).read_bytes() == content
    assert_same(shared_run(*SETTINGS, name="other", **MIX), whole)


def test_images_of_earlier_sessions_are_never_read_again(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Access to a session's training images fails once the next has started, and its features are released."""
    from cocoamix.trainers.fscil.methods import CoCoAMixFSCIL

    forbidden: set[str] = set()
    gone: list[Any] = []
    read, begin = images.read_identified, CoCoAMixFSCIL.begin

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

    monkeypatch.setattr(CoCoAMixFSCIL, "begin", strict_begin)
    monkeypatch.setattr(images, "read_identified", strict_read)
    for mode in ("off", "all"):
        forbidden.clear()
        done = run(*SETTINGS, "CACHE.MODE", mode, name=mode, **MIX)
        assert done.status == 0, done.output[-500:]
        assert len(forbidden) == 24 + 2 * 4
    assert gone == [False, True, True, True] * 2  # the first session is built with the trainer


@pytest.mark.parametrize(("session", "epoch"), [(0, 1), (2, 1), (2, 4)])
def test_killed_run_resumes_identically(
    run: Runner, shared_run: Runner, monkeypatch: pytest.MonkeyPatch, session: int, epoch: int
) -> None:
    from cocoamix.trainers.fscil.methods import CoCoAMixFSCIL

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
    assert_same(shared_run(*SETTINGS, name="whole", **MIX), resumed)


def test_weights_of_sessions_have_no_warm_up(shared_run: Runner) -> None:
    """Both epochs of session 0 count, at the rates of a schedule over two epochs; the prompt has its warm-up."""
    done = shared_run(*SETTINGS, "FSCIL.LAST_SESSION", "1", **MIX)
    rates = [float(rate) for rate in re.findall(r"epoch \[.*batch \[1/.* lr (\S+)", done.output)]
    assert rates[:4] == pytest.approx([1e-5, 0.02, 0.002, 0.001])
    # Session 1 has one step an epoch, after which the log shows the rate of the next.
    assert rates[4:] == pytest.approx([0.02, 0.01, 0.0015, 0.0005, 0.0], abs=1e-9)
    stages = done.results["second_stages"]
    assert [(one["epochs"], one["ended"]) for one in stages] == [(2, "length"), (3, "length")]
    assert [one["pi_in"] for one in stages] != [0.5, 0.5]


def test_sessions_whose_weights_train_until_convergence(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each after its own number of epochs; a run killed in both ends with the same result."""
    from cocoamix.trainers.fscil.methods import CoCoAMixFSCIL

    settings = [*SHORT, "FSCIL.LAST_SESSION", "1", "FSCIL.BASE_WEIGHT_EPOCHS", "0", "FSCIL.WEIGHT_EPOCHS", "0"]
    settings += ["TRAINER.COCOAMIX.WEIGHT_TOLERANCE", "0.5", "TRAINER.COCOAMIX.WEIGHT_MAX_STEPS", "60"]
    settings += ["DATALOADER.TRAIN_X.BATCH_SIZE", "4"]  # six steps and one step per epoch
    whole = run(*settings, name="whole", **MIX)
    assert whole.status == 0, whole.output[-500:]
    stages = whole.results["second_stages"]
    assert [(one["epochs"], one["steps"]) for one in stages] == [(9, 54), (50, 50)]
    assert [one["ended"] for one in stages] == ["converged", "converged"]
    before_epoch = CoCoAMixFSCIL.before_epoch
    for place in ((0, 5), (1, 30)):

        def stop(self: Any, place: tuple[int, int] = place) -> None:
            if (self.session, self.epoch) == place:
                raise KeyboardInterrupt
            before_epoch(self)

        with monkeypatch.context() as patch:
            patch.setattr(CoCoAMixFSCIL, "before_epoch", stop)
            assert run(*settings, **MIX).status == 130
    resumed = run(*settings, **MIX)
    assert_same(whole, resumed, sessions=2)
    assert resumed.results["second_stages"] == stages
    evaluated = run("--eval-only", "--model-dir", str(whole.folder), *settings, name="evaluated", **MIX)
    assert evaluated.results["second_stages"] == stages


def test_a_lost_session_file_is_restored(run: Runner, shared_run: Runner) -> None:
    """The resume file of a finished run has everything that its last session learned."""
    whole = shared_run(*SHORT, **MIX)
    lost = whole.folder / "sessions" / "session-3.pth"
    before, report = tensors(whole.folder, 3), session_results(whole)
    lost.unlink()
    again = run(*SHORT, **MIX)
    assert "in session 3, 2 of 2 epochs are done" in again.output
    assert lost.is_file()
    assert all(torch.equal(value, before[key]) for key, value in tensors(whole.folder, 3).items())
    assert session_results(again) == report
    lost.unlink()
    elsewhere = run("--resume", str(whole.folder), *SHORT, name="elsewhere", **MIX)
    assert (elsewhere.folder / "sessions" / "session-3.pth").is_file()


MOMENTS = [("resume.pth", False), ("session-2.pth", False), ("session-2.pth", True), ("results.json", False)]


def test_run_killed_between_two_files_resumes_identically(
    run: Runner, shared_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In session 2, before or after the first write of a file."""
    settings = SHORT
    whole = shared_run(*settings, name="whole", **MIX)
    begun = shared_run(*settings, "FSCIL.LAST_SESSION", "1", name="begun", **MIX)
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


def test_run_without_a_seed_resumes(run: Runner) -> None:
    first = run(*SETTINGS, "FSCIL.LAST_SESSION", "1", seed="-1", **MIX)
    second = run(*SETTINGS, seed="-1", **MIX)
    assert second.status == 0, second.output[-500:]
    assert first.results["seed"] == second.results["seed"]
    assert "2 of 4 sessions are finished" in second.output


def test_sessions_resume_in_another_folder(run: Runner, shared_run: Runner, tmp_path: Path) -> None:
    first = shared_run(*SETTINGS, "FSCIL.LAST_SESSION", "1", name="first", **MIX)
    second = run("--resume", str(first.folder), *SETTINGS, name="second", **MIX)
    assert_same(shared_run(*SETTINGS, name="whole", **MIX), second)
    none = run("--resume", str(tmp_path / "data"), *SETTINGS, name="third", **MIX)
    assert none.status == 2
    assert "holds neither resume.pth nor finished sessions" in none.output


def test_any_session_can_be_evaluated(run: Runner, shared_run: Runner) -> None:
    trained = shared_run(*SETTINGS, **MIX)
    wanted = session_results(trained)["sessions"]
    for last in (0, 2, -1):
        extra = ["--eval-only", "--model-dir", str(trained.folder), *SETTINGS, "FSCIL.LAST_SESSION", str(last)]
        done = run(*extra, name=f"test{last}", **MIX)
        assert done.status == 0, done.output[-500:]
        assert session_results(done)["sessions"] == wanted[: last + 1 or None]
    other = run(
        "--eval-only", "--model-dir", str(trained.folder), *SETTINGS, "TRAINER.COCOAMIX.ENSEMBLE", "uniform", **MIX
    )
    assert session_results(other)["method"] == "CoCoA-Mix (uniform)"


def test_evaluation_reports_the_training(run: Runner) -> None:
    """Whatever the command line says about it: the template, the images, the epochs, the seed."""
    template = ["TRAINER.COCOAMIX.TEMPLATE", "a satellite picture of {}, seen from far away."]
    trained = run(*SETTINGS, *template, **MIX)
    others = [*SETTINGS, "FSCIL.SHOTS", "3", "OPTIM.MAX_EPOCH", "7", "OPTIM.LR", "0.5", "TRAINER.COCOAMIX.N_CTX", "3"]
    done = run("--eval-only", "--model-dir", str(trained.folder), *others, name="other", seed="2", **MIX)
    assert done.status == 0, done.output[-500:]
    assert "FSCIL.SHOTS is 2 as in training; the configuration's 3 is not used" in done.output
    assert session_results(done) == session_results(trained)
    alone = {"evaluation_seconds", "overridden"}
    theirs, ours = trained.results, done.results
    assert ours.pop("config") == {**theirs.pop("config"), "OUTPUT_DIR": str(done.folder)}
    assert {k: v for k, v in ours.items() if k not in alone} == {k: v for k, v in theirs.items() if k not in alone}
    early = ["FSCIL.LAST_SESSION", "0"]
    first = run("--eval-only", "--model-dir", str(trained.folder), *SETTINGS, *early, name="first", **MIX)
    assert (first.results["epoch"], first.results["train_images"]) == (4, 24)


def test_run_is_finished_after_all_sessions(run: Runner, shared_run: Runner) -> None:
    short = shared_run(*SHORT, "FSCIL.LAST_SESSION", "1", **MIX)
    assert not session_results(short)["finished"]
    assert not short.results["finished"]
    assert not session_results(run("--eval-only", "--model-dir", str(short.folder), *SHORT, name="evaluated", **MIX))[
        "finished"
    ]
    whole = run(*SHORT, **MIX)
    assert session_results(whole)["finished"]
    assert whole.results["finished"]
    before = (whole.folder / "results.json").read_bytes()
    again = run(*SHORT, "FSCIL.LAST_SESSION", "1", **MIX)
    assert again.status == 0
    assert "cover 4 sessions of this run; they are not overwritten" in again.output
    assert (whole.folder / "results.json").read_bytes() == before
    # Of another run in the same folder there is nothing to keep.
    other = run("--eval-only", "--model-dir", str(whole.folder), *SHORT, "FSCIL.LAST_SESSION", "1", seed="2", **MIX)
    assert len(session_results(other)["sessions"]) == 4
    uniform = ["TRAINER.COCOAMIX.ENSEMBLE", "uniform", "FSCIL.LAST_SESSION", "1"]
    assert (
        len(session_results(run("--eval-only", "--model-dir", str(whole.folder), *SHORT, *uniform, **MIX))["sessions"])
        == 2
    )


def test_script_skips_only_finished_runs(tmp_path: Path) -> None:
    """Without a results.json, or with one that lacks the last session, the command is run."""
    scripts = tmp_path / "scripts" / "cocoamix"
    scripts.mkdir(parents=True)
    for name in ("interpreter.sh", "cocoamix/common.sh", "cocoamix/fscil.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts" / name)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    folder = tmp_path / "output/fscil/shapes/CoCoAMixFSCIL/tiny/seed1"
    folder.mkdir(parents=True)
    stand_in = tmp_path / "python"  # prints the command of a run, but does read results
    stand_in.write_text(f'#!/bin/sh\n[ "$1" = -m ] && exec "{sys.executable}" "$@"\necho "$@"\n')
    stand_in.chmod(0o755)
    environment = {**os.environ, "COCOAMIX_PYTHON": str(stand_in), "PYTHONPATH": str(ROOT)}
    environment |= {"DATASET": "shapes", "CFG": "tiny"}
    whole = {"metrics": {"accuracy": 80.0}}
    for content, skipped, words in (
        (None, False, ""),
        ({**whole, "finished": True}, True, ""),
        ({"finished": True}, False, "it has no 'metrics'"),
    ):
        if content is not None:
            files.write_json(folder / "results.json", content)
        command = ["bash", str(scripts / "fscil.sh"), "1"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert ("Skipped" in done.stdout) == skipped
        assert ("train.py" in done.stdout) == (not skipped)
        assert words in done.stderr
    files.write_json(folder / "results.json", {**whole, "version": 3})
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "its version is 3, and this cocoamix reads versions up to 2" in done.stderr


def test_unreadable_test_images_do_not_count(run: Runner, data_root: Path) -> None:
    """Neither as correct nor as images, in their session and overall."""
    whole = run(*SPLIT, name="whole", **CLIP)
    split = json.loads((data_root / "eurosat" / "split_zhou_EuroSAT.json").read_text())["test"]
    broken = [path for path, label, _ in split if label == 4][:3]
    for path in broken:
        (data_root / "eurosat" / "2750" / path).write_bytes(b"no image")
    done = run(*SPLIT, "DATASET.BAD_IMAGES", "skip", name="skipped", **CLIP)
    assert done.status == 0, done.output[-500:]
    assert [one["images"] for one in session_results(done)["sessions"]] == [16, 21, 29, 37]
    assert session_results(done)["sessions"][0] == session_results(whole)["sessions"][0]
    share = session_results(done)["sessions"][1]["novel"] * 5 / 100  # five images are left
    assert share == pytest.approx(round(share))
    assert done.results["metrics"]["accuracy"] == session_results(done)["sessions"][-1]["accuracy"]
    assert done.results["evaluated_images"] == 37


def test_other_mixtures_train_the_same_prompts(run: Runner, shared_run: Runner) -> None:
    """Training with uniform weights equals evaluating CoCoA-Mix's prompts with uniform weights."""
    coa = shared_run(*SETTINGS, name="coa", **MIX)
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
        assert session_results(trained)["sessions"] == session_results(evaluated)["sessions"]
        assert (
            session_results(evaluated)["method"]
            == {"uniform": "CoCoA-Mix (uniform)", "none": "CoCoA-Mix (own prompt alone)"}[kind]
        )
    back = run("--eval-only", "--model-dir", str(trained.folder), *SETTINGS, name="back", **MIX)
    assert back.status == 2
    assert "has no weights" in back.output


def test_two_copies_of_a_model_match_the_single_model(run: Runner) -> None:
    """Two copies of one model match the single model, session by session."""
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
    one, other = (session_results(run)["sessions"] for run in done)
    for mine, theirs in zip(one, other, strict=True):
        for key in ("ece", "nll"):  # the mean of two features is rounded
            assert mine.pop(key) == pytest.approx(theirs.pop(key), rel=1e-4)
    assert one == other
    contexts = [tensors(done[0].folder, session)["prompt_learner.ctx"] for session in (0, 1)]
    assert not torch.equal(*contexts)  # each session's starts from its own draw


def test_zero_shot_clip_matches_its_evaluation_on_all_classes(run: Runner) -> None:
    """After the last session it matches CLIP on all classes with another trainer; and there is nothing to train."""
    done = run(*SPLIT, **CLIP)
    assert done.status == 0, done.output[-500:]
    plain = run("--eval-only", name="plain", trainer="ZeroshotCLIP")
    assert done.results["metrics"]["accuracy"] == plain.results["metrics"]["accuracy"]
    assert (
        session_results(run("--eval-only", *SPLIT, name="evaluated", **CLIP))["sessions"]
        == session_results(done)["sessions"]
    )
    assert not (done.folder / "sessions").exists()


def test_one_context_is_trained_through_all_sessions(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_one_context_matches_independent_calculation(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each session CoOp-FSCIL gives the result of that session's context, on all classes seen."""
    from cocoamix.trainers.fscil.methods import CoOpFSCIL

    seen: list[Any] = []
    original = CoOpFSCIL.test
    monkeypatch.setattr(CoOpFSCIL, "test", lambda self, split=None: (seen.append(self), original(self, split))[1])
    done = run(*SETTINGS, "FSCIL.TUNED_CLASSES", "seen", **COOP)
    trainer = seen[-1]
    for session in range(4):
        names = CLASSES[: 4 + 2 * session]
        learner = PromptLearner(trainer.clip, names, n_ctx=4)
        learner.ctx.data.copy_(tensors(done.folder, session)["prompt_learner.ctx"])
        wanted = trainer.clip.encode_prompts(learner()).detach()
        found = trainer.classifier(session).detach()
        assert torch.allclose(found, wanted, atol=1e-5)
        assert session == 0 or not torch.allclose(found[:4], trainer.classifier(0).detach(), atol=1e-3)
    again = run("--eval-only", "--model-dir", str(done.folder), *SETTINGS, name="again", **COOP)
    assert again.status == 0, again.output[-500:]
    assert "FSCIL.TUNED_CLASSES is 'seen' as in training" in again.output
    assert session_results(again)["sessions"] == session_results(done)["sessions"]


def test_one_context_cannot_be_ensembled(run: Runner) -> None:
    done = run(*SETTINGS, "TRAINER.COOP.ENSEMBLE", "uniform", **COOP)
    assert done.status == 2
    assert "CoOp-FSCIL has a single context" in done.output


def test_views_are_counted_over_the_epochs_of_a_session(run: Runner) -> None:
    """Two epochs of the prompt and three of the weights cycle through three augmentations, and the run says so."""
    done = run(*SETTINGS, "FSCIL.LAST_SESSION", "1", "CACHE.VIEWS", "3", **MIX)
    assert "Note: CACHE.VIEWS 3 departs from CoOp's protocol" in done.output
    assert done.results["protocol"]["views"] == 3
    enough = run(*SETTINGS, "FSCIL.LAST_SESSION", "0", "CACHE.VIEWS", "5", name="enough", **MIX)
    assert "departs from CoOp's protocol" not in enough.output
    assert enough.results["protocol"]["views"] == 0


def test_test_settings_are_not_training_settings(run: Runner) -> None:
    run(*SHORT, "FSCIL.LAST_SESSION", "1", "TEST.NO_TEST", "True", **MIX)
    done = run(*SHORT, **MIX)
    assert done.status == 0, done.output[-500:]
    assert "2 of 4 sessions are finished" in done.output


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["FSCIL.WAY", "4"], "cannot be split"),
        (["FSCIL.SHOTS", "0"], "FSCIL.SHOTS is 0; it must be at least 1"),
        (["FSCIL.SHOTS", "9"], "FSCIL.SHOTS is 9, but the class"),
        (["FSCIL.SPLIT", "cec"], "EuroSAT has no published sessions"),
        (["FSCIL.LAST_SESSION", "4"], "has the sessions 0 to 3"),
        (["FSCIL.BASEE", "4"], "not a configuration key"),
        (["DATASET.SUBSAMPLE_CLASSES", "base"], "sessions are formed from all classes"),
        (["TEST.FINAL_MODEL", "best_val"], "evaluated after their last epoch"),
        (["DATASET.NUM_SHOTS", "4"], "DATASET.NUM_SHOTS is 4, but session 0 has all images"),
        (["TRAINER.COCOAMIX.STAGE", "one"], "use STAGE two"),
        (["TRAINER.COCOAMIX.DOMAIN", "in"], "use auto"),
        (
            ["TRAINER.COCOAMIX.WEIGHT_FIT", "heldout"],
            "WEIGHT_FIT is heldout, but sessions have no folds",
        ),
        (["TRAINER.COCOAMIX.CALIBRATED", "True"], "CALIBRATED is True, but sessions have no folds"),
    ],
)
def test_invalid_settings_are_refused(run: Runner, extra: list[str], message: str) -> None:
    done = run(*SETTINGS, *extra, **MIX)
    assert done.status == 2
    assert message in done.output


def test_refuses_files_of_other_runs(run: Runner, shared_run: Runner) -> None:
    trained = shared_run(*SETTINGS, **MIX)
    model = ["--eval-only", "--model-dir", str(trained.folder)]
    cases = [
        ([*model, *SETTINGS, "FSCIL.WAY", "3"], MIX, "contains 4 sessions, but this run has 3"),
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


def test_refuses_altered_files(run: Runner, shared_run: Runner) -> None:
    """Each with one sentence, in an evaluation and when resuming; files with other names are ignored."""
    trained = shared_run(*SHORT, **MIX)
    (trained.folder / "sessions" / "session-x.pth").write_bytes(b"")
    (trained.folder / "sessions" / "session-04.pth").write_bytes(b"")
    path = trained.folder / "sessions" / "session-2.pth"
    good = path.read_bytes()
    origin = kept(trained.folder, 2)["cocoamix"]
    state = kept(trained.folder, 2)["models"]
    settings = origin["settings"]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"epoch": "two"}, "its epoch is 'two'"),
        ({"session": 3}, "its content is that of session 3"),
        ({"models": None}, "it contains no prompt"),
        ({"models": {"coa_weights": state["coa_weights"]}}, "it contains no prompt"),
        ({"models": {**state, "prompt_learner": {"ctx": [1.0]}}}, "it contains no prompt"),
        ({"models": {**state, "coa_weights": {"inside": torch.zeros(2)}}}, "are not two numbers"),
        ({"unreadable": ["a"]}, "its list of unreadable images is not a mapping"),
        ({"cocoamix": None}, "it does not record its run"),
        ({"cocoamix": {k: v for k, v in origin.items() if k != "settings"}}, "does not record the settings of its run"),
        ({"cocoamix": {**origin, "classnames": None}}, "does not record the classnames of its run"),
        ({"cocoamix": {**origin, "seed": 2}}, "session-0.pth belong to different runs: their seed is 2 and 1"),
        (
            {"cocoamix": {**origin, "settings": {**settings, "TRAINER.COCOAMIX.TEMPLATE": "{}."}}},
            "belong to different runs: their TRAINER.COCOAMIX.TEMPLATE is '{}.'",
        ),
    ]
    for number, (changes, message) in enumerate(cases):
        checkpoints.save(path, {**checkpoints.load(path), **changes})
        evaluated = run("--eval-only", "--model-dir", str(trained.folder), *SHORT, name=f"case{number}", **MIX)
        assert evaluated.status == 2, (number, evaluated.output[-500:])
        assert message in evaluated.output
        if number % 4 == 0:
            gone_on = run(*SHORT, **MIX)
            assert gone_on.status == 2
            assert message in gone_on.output
        path.write_bytes(good)
    assert run(*SHORT, **MIX).status == 0
    first = trained.folder / "sessions" / "session-0.pth"
    checkpoints.save(first, {**checkpoints.load(first), "cocoamix": {}})
    unseeded = run(*SHORT, seed="-1", **MIX)
    assert unseeded.status == 2
    assert "session-0.pth is not a session file" in unseeded.output
