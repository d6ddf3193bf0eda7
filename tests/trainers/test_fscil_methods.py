"""FSPT-FSCIL, FACT and L2P over sessions: limits that match other methods, resumes, separate evaluations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import nn

from cocoamix.errors import UserError
from cocoamix.export import export
from cocoamix.fscil.episodes import EpisodeSampler, EpisodeSize
from cocoamix.fscil.prototypes import ForwardCompatible
from cocoamix.io import checkpoints
from cocoamix.prompts.context import PromptLearner
from cocoamix.run.schedules import build_schedule
from cocoamix.seeding import derive_seed
from cocoamix.trained import load
from cocoamix.trainers.fscil.fact import FACTFSCIL
from cocoamix.trainers.fscil.fspt import FSPTFSCIL
from cocoamix.trainers.fscil.l2p import L2PFSCIL
from cocoamix.trainers.fscil.loop import SessionTrainer
from cocoamix.trainers.fscil.methods import CoOpFSCIL
from tests.conftest import CLASSES, ROOT, Run, Runner, command
from tests.faults.runs import KINDS
from tests.trainers.test_fscil import assert_same, kept, session_results, tensors

NEW = ["FSPT, sessions", "FACT, sessions", "L2P, sessions", "L2P, sessions, visual"]
FSPT, FACT, L2P, VISUAL = (list(KINDS[kind][1]) for kind in NEW)
PLAIN = ["OPTIM.NAME", "sgd", "OPTIM.LR", "0.05", "OPTIM.WARMUP_EPOCH", "-1", "OPTIM.LR_SCHEDULER", "single_step"]


def watch(monkeypatch: pytest.MonkeyPatch, trainer: type[Any], method: str) -> list[tuple[Any, ...]]:
    """Record the trainer and the arguments of every call of a method, with tensors as they are at that time."""
    seen: list[tuple[Any, ...]] = []
    original = getattr(trainer, method)

    def watched(self: Any, *args: Any) -> Any:
        seen.append((self, *(one.detach().clone() if isinstance(one, torch.Tensor) else one for one in args)))
        return original(self, *args)

    monkeypatch.setattr(trainer, method, watched)
    return seen


def train(run: Runner, kind: str, *settings: str, name: str = "run") -> Run:
    done = run(*KINDS[kind][1], *settings, trainer=KINDS[kind][0], name=name)
    assert done.status == 0, done.output[-800:]
    return done


# ---------------------------------------------------------------------- all of them


@pytest.mark.parametrize("kind", NEW)
def test_run_interrupted_in_every_session_ends_identically(
    run: Runner, shared_run: Runner, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A run stopped once in each of its sessions ends like an uninterrupted one, and so does its evaluation."""
    whole = train(shared_run, kind, name="whole")
    before_epoch = SessionTrainer.before_epoch
    for session in range(4):
        epoch = 0 if "FACT" in kind and session else 1

        def stop(self: Any, place: tuple[int, int] = (session, epoch)) -> None:
            if (self.session, self.epoch) == place:
                raise KeyboardInterrupt
            before_epoch(self)

        with monkeypatch.context() as patch:
            patch.setattr(SessionTrainer, "before_epoch", stop)
            assert run(*KINDS[kind][1], trainer=KINDS[kind][0]).status == 130, session
    resumed = train(run, kind)
    assert "** Session 2 of 3" not in resumed.output
    assert_same(whole, resumed)


def test_evaluation_takes_its_settings_from_the_run(
    shared_run: Runner, data_root: Path, tmp_path: Path, tiny_config: Path
) -> None:
    """After all sessions and after some; the training settings are taken from the run."""
    done = {kind: train(shared_run, kind, name=kind) for kind in NEW}
    commands = [
        command(
            *(data_root, tmp_path / f"{kind} {last}", tiny_config, "--eval-only", "--model-dir", str(one.folder)),
            *(*KINDS[kind][1], "FSCIL.LAST_SESSION", last, "OPTIM.LR", "0.5"),
            trainer=KINDS[kind][0],
        )
        for kind, one in done.items()
        for last in ("-1", "1")
    ]
    script = (
        "import json, sys, cocoamix.train\nfor one in json.loads(sys.argv[1]):\n  assert cocoamix.train.main(one) == 0"
    )
    subprocess.run([sys.executable, "-c", script, json.dumps(commands)], cwd=ROOT, check=True, capture_output=True)
    for kind, one in done.items():
        for last in ("-1", "1"):
            found = Run(0, "", tmp_path / f"{kind} {last}")
            assert session_results(found)["sessions"] == session_results(one)["sessions"][: 2 if last == "1" else 4], (
                kind,
                last,
            )
            assert found.results["trained_parameters"] == one.results["trained_parameters"]
    # A session saves what later ones need: after the first, only the prototypes for FACT.
    assert set(tensors(done[NEW[0]].folder, 2)) == {"prompt_learner.ctx", "prompt_learner.fast_ctx"}
    assert set(tensors(done[NEW[1]].folder, 2)) == {"prototypes.prototypes"}
    assert set(tensors(done[NEW[2]].folder, 2)) == {"prompt_learner.prompt", "prompt_learner.prompt_key"}
    assert [session_results(one)["method"] for one in done.values()] == [
        *("FSPT-FSCIL", "FACT w/ CLIP, our interpretation", "L2P, text pool", "L2P, visual pool"),
    ]


# ---------------------------------------------------------------------- FSPT-FSCIL


def test_fspt_without_its_inner_loop_matches_coop(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """At an inner rate of 0, 12 slow and 8 fast vectors are a context of 20, trained on queries with CoOp's steps."""
    steps = watch(monkeypatch, FSPTFSCIL, "take_step")
    contexts = ["TRAINER.FSPT.N_CTX", "12", "TRAINER.FSPT.F_N_CTX", "8"]
    done = train(run, NEW[0], *PLAIN, *contexts, "TRAINER.FSPT.INNER_LR", "0.0", "FSCIL.TUNED_CLASSES", "seen")
    clip, context = steps[0][0].clip, None
    assert [len([one for one in steps if set(one[2].tolist()) <= set(own)]) for own in (range(4), range(4, 6))] == [
        5,
        3,
    ]
    steps_of = [5, 3, 3, 3]
    for session, count in enumerate(steps_of):
        learner = PromptLearner(clip, CLASSES[: 4 + 2 * session], 20, seed=derive_seed(1, "context"))
        if context is not None:
            learner.ctx.data.copy_(context)
        optimizer = torch.optim.SGD([learner.ctx], lr=0.05, momentum=0.9, weight_decay=5e-4)
        for _, features, labels in steps[sum(steps_of[:session]) :][:count]:
            text = clip.encode_prompts(learner())
            optimizer.zero_grad()
            F.cross_entropy(clip.logit_scale * features @ text.t(), labels).backward()
            optimizer.step()
        context = learner.ctx.detach().clone()
        found = tensors(done.folder, session)
        assert [len(found[f"prompt_learner.{name}"]) for name in ("ctx", "fast_ctx")] == [12, 8]
        whole = torch.cat([found["prompt_learner.ctx"], found["prompt_learner.fast_ctx"]])
        assert torch.equal(whole, context), session


def test_fspt_adapts_to_the_support_and_steps_on_the_query(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The images of each loop and step, identified by features, match the episode of seed, session and step."""
    loops, steps = watch(monkeypatch, FSPTFSCIL, "adapt"), watch(monkeypatch, FSPTFSCIL, "take_step")
    batches: list[torch.Tensor] = []
    original = FSPTFSCIL.forward_backward

    def noted(self: Any, batch: dict[str, Any]) -> Any:
        batches.append(self.encode(self.parse_batch_train(batch)[0]).clone())
        return original(self, batch)

    monkeypatch.setattr(FSPTFSCIL, "forward_backward", noted)
    train(run, NEW[0], "FSCIL.LAST_SESSION", "1")
    trainer = steps[0][0]
    assert len(loops) == len(steps) == len(batches) == 5 + 3
    for number, (loop, step, features) in enumerate(zip(loops, steps, batches, strict=True)):
        session, place = (0, number) if number < 5 else (1, number - 5)
        items, labels = trainer.sessions[session].train, trainer.sessions[session].labels
        shots = 1 if session else 2
        sampler = EpisodeSampler([item.label for item in items], EpisodeSize(2, shots, 2, 6), session, 5, 2)
        sampler.seed = 1  # as in the run
        episode = sampler.draw(place)
        support = len(episode.support)
        assert support == 2 * shots
        assert support + len(episode.query) == len(features)
        for (_, shown, its), part, indices in (
            (loop, features[:support], episode.support),
            (step, features[support:], episode.query),
        ):
            assert its.tolist() == [items[index].label - labels.start for index in indices]
            assert torch.equal(shown, part)


def test_fspt_inner_loop_matches_independent_calculation(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Image by image, with the gradient of the whole context, of which only the fast part is updated."""
    loops: list[tuple[Any, ...]] = []
    original = FSPTFSCIL.adapt

    def watched(self: Any, features: torch.Tensor, labels: torch.Tensor) -> None:
        before = self.prompt_learner.context().detach().clone()
        original(self, features, labels)
        loops.append((self, features.clone(), labels.clone(), before, self.prompt_learner.context().detach().clone()))

    monkeypatch.setattr(FSPTFSCIL, "adapt", watched)
    for position in ("end", "middle"):
        settings = ["FSCIL.LAST_SESSION", "1", "FSCIL.TUNED_CLASSES", "all", "TRAINER.FSPT.INNER_LR", "0.5"]
        train(run, NEW[0], *PLAIN, *settings, "TRAINER.FSPT.CLASS_TOKEN_POSITION", position, name=position)
        assert [len(one[2]) for one in loops] == [4] * 5 + [2] * 3
        for number in (1, 6):
            trainer, features, labels, context, wanted = loops[number]
            learner = PromptLearner(trainer.clip, CLASSES, 4, position=position)
            for feature, label in zip(features, labels, strict=True):
                learner.ctx = nn.Parameter(context)
                text = trainer.clip.encode_prompts(learner())
                loss = F.cross_entropy(trainer.clip.logit_scale * feature[None] @ text.t(), label[None])
                (slope,) = torch.autograd.grad(loss, learner.ctx)
                context = torch.cat([context[:2], context[2:] - 0.5 * slope[2:]])
            assert not torch.equal(wanted[2:], loops[number][3][2:])
            assert torch.equal(wanted[:2], loops[number][3][:2])
            torch.testing.assert_close(wanted, context, rtol=1e-4, atol=1e-6)
        # The next loop starts from the fast context of the last outer step: it is never reset.
        assert not torch.equal(loops[2][3][2:], loops[0][3][2:])
        loops.clear()


def test_fspt_omits_unreadable_images(run: Runner, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are omitted from both support and query, with and without stored features."""
    for file in sorted((data_root / "eurosat" / "2750" / CLASSES[0].replace(" ", "")).glob("*_[0-3].png")):
        file.write_bytes(b"not an image")
    loops, steps = watch(monkeypatch, FSPTFSCIL, "adapt"), watch(monkeypatch, FSPTFSCIL, "take_step")
    for mode in ("all", "off"):
        extra = ["DATASET.BAD_IMAGES", "skip", "CACHE.MODE", mode, "FSCIL.LAST_SESSION", "0"]
        train(run, NEW[0], *extra, "TRAINER.FSPT.N_WAYS", "4", name=mode)
    for number, (loop, step) in enumerate(zip(loops, steps, strict=True)):
        trainer = loop[0]
        items, episode = trainer.sessions[0].train, trainer.episodes.draw(number % 5)
        for labels, places in ((loop[2], episode.support), (step[2], episode.query)):
            shown = [items[place] for place in places]
            assert labels.tolist() == [item.label for item in shown if item.impath not in trainer.unreadable]
    assert min(len(one[2]) for one in loops) < 8  # four classes, two images each


# ---------------------------------------------------------------------- FACT


def test_fact_without_virtual_classes_is_a_cosine_network(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Balance 0 and eta 0: cross-entropy of cosines, then the means of each class as it is evaluated."""
    steps = watch(monkeypatch, FACTFSCIL, "take_step")
    settings = ["TRAINER.FACT.BALANCE", "0.0", "TRAINER.FACT.ETA", "0.0", "OPTIM.MAX_EPOCH", "3"]
    done = train(run, NEW[1], *PLAIN, *settings)
    trainer = steps[0][0]
    assert len(steps) == 3 * 3  # nothing after session 0
    start = ForwardCompatible(128, 32, 4, 6, 3, derive_seed(1, "fact"))
    net = nn.Sequential(nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 128))
    rows = nn.Parameter(start.prototypes.detach().clone())
    with torch.no_grad():
        for mine, theirs in zip(net.parameters(), start.network.parameters(), strict=True):
            mine.copy_(theirs)
    optimizer = torch.optim.SGD([*net.parameters(), rows], lr=0.05, momentum=0.9, weight_decay=5e-4)

    def similar(features: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        embedded = features + net(features)
        return F.cosine_similarity(embedded[:, None], rows[None], dim=-1)

    for _, features, labels in steps:
        optimizer.zero_grad()
        F.cross_entropy(16 * similar(features, rows), labels).backward()
        optimizer.step()
    found = tensors(done.folder, 0)
    assert float(found["prototypes.network.outer.weight"].abs().max()) > 1e-3
    torch.testing.assert_close(found["prototypes.network.inner.weight"], net[0].weight, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found["prototypes.network.outer.weight"], net[2].weight, rtol=1e-3, atol=1e-5)
    shown = [item for session in trainer.sessions for item in session.train]
    transform = trainer.test_loader.dataset.transform
    from cocoamix.features.reading import read_image

    def features_of(items: list[Any]) -> torch.Tensor:
        return trainer.clip.encode_image(torch.stack([transform(read_image(item.impath)) for item in items]))

    with torch.no_grad():
        embedded = features_of(shown)
        embedded = embedded + net(embedded)
        of = torch.tensor([item.label for item in shown])
        means = torch.stack([embedded[of == label].mean(dim=0) for label in range(10)])
        assert [int((of == label).sum()) for label in range(10)] == [6] * 4 + [2] * 6
        kept_rows = torch.cat([tensors(done.folder, n)["prototypes.prototypes"] for n in range(4)])
        torch.testing.assert_close(kept_rows, means, rtol=1e-3, atol=1e-4)
        for session in (0, 2):
            seen = 4 + 2 * session
            tested = [item for one in trainer.sessions[: session + 1] for item in one.test]
            logits = 16 * similar(features_of(tested), means[:seen])
            right = logits.argmax(dim=1) == torch.tensor([item.label for item in tested])
            assert 100 * float(right.float().mean()) == pytest.approx(
                session_results(done)["sessions"][session]["accuracy"]
            )
            scores = trainer.scorer(session)(features_of(tested))
            torch.testing.assert_close(scores.softmax(dim=1), logits.softmax(dim=1), rtol=1e-3, atol=1e-4)


def test_fact_reads_no_image_of_an_earlier_session(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    from cocoamix.features import images

    forbidden: set[str] = set()
    read, begin = images.read_identified, FACTFSCIL.begin

    def strict_begin(self: Any, number: int) -> None:
        for earlier in self.sessions[:number]:
            forbidden.update(item.impath for item in earlier.train)
        begin(self, number)

    def strict_read(impath: str, upright: bool) -> Any:
        if impath in forbidden:
            raise OSError("an image of an earlier session")
        return read(impath, upright)

    monkeypatch.setattr(FACTFSCIL, "begin", strict_begin)
    monkeypatch.setattr(images, "read_identified", strict_read)
    train(run, NEW[1], "CACHE.MODE", "off")
    assert len(forbidden) == 24 + 2 * 4


def test_fact_prototypes_do_not_depend_on_test_batches(run: Runner) -> None:
    """The test batch size may change on a resume."""
    common = ["CACHE.MODE", "off", "FSCIL.LAST_SESSION", "1", "DATALOADER.TEST.BATCH_SIZE"]
    one, other = (train(run, NEW[1], *common, size, name=size) for size in ("1", "50"))
    for session in (0, 1):
        first, second = (tensors(done.folder, session)["prototypes.prototypes"] for done in (one, other))
        assert torch.equal(first, second), session


def test_fact_needs_an_image_of_every_class(run: Runner, data_root: Path) -> None:
    for file in (data_root / "eurosat" / "2750" / CLASSES[5].replace(" ", "")).glob("*.png"):
        if int(file.stem.rsplit("_", 1)[1]) < 6:
            file.write_bytes(b"not an image")
    done = run(*FACT, "DATASET.BAD_IMAGES", "skip", trainer="FACTFSCIL")
    assert done.status == 2
    assert f"No image of the class {CLASSES[5]!r} in session 1 can be read" in done.output


def test_fact_knows_only_its_own_classes(run: Runner, tmp_path: Path) -> None:
    done = load(train(run, NEW[1]).folder)
    some = done.with_classes([CLASSES[7], CLASSES[0]], keep=False)
    image = torch.rand(3, 32, 32)
    assert some.probabilities([image]).shape == (1, 2)
    with pytest.raises(UserError, match="no images of the class 'zebra'"):
        done.with_classes(["zebra"])
    path = done.record.folder / "sessions" / "session-1.pth"
    content = checkpoints.load(path)
    content["models"]["prototypes"]["prototypes"] = torch.zeros(3, 128)
    checkpoints.save(path, content)
    with pytest.raises(UserError, match="its file was altered"):
        load(done.record.folder)


# ---------------------------------------------------------------------- L2P


def test_l2p_with_one_prompt_matches_coop(run: Runner) -> None:
    """A pool of one prompt is CoOp-FSCIL: the key is pulled towards the images, with no other effect."""
    common = ["OPTIM.NAME", "sgd", "OPTIM.LR", "0.05"]
    one = [
        "TRAINER.L2P.POOL_SIZE",
        "1",
        "TRAINER.L2P.TOP_K",
        "1",
        "TRAINER.L2P.LENGTH",
        "4",
        "TRAINER.L2P.CLIP_NORM",
        "0.0",
    ]
    pool = train(run, NEW[2], *common, *one, name="pool")
    coop = train(run, "CoOp, sessions", *common, "TRAINER.COOP.N_CTX", "4", name="coop")
    for session in range(4):
        mine, theirs = tensors(pool.folder, session), tensors(coop.folder, session)
        assert torch.equal(mine["prompt_learner.prompt"][0], theirs["prompt_learner.ctx"])
    keys = [tensors(pool.folder, session)["prompt_learner.prompt_key"] for session in (0, 1)]
    assert not torch.equal(*keys)
    assert session_results(pool)["sessions"] == session_results(coop)["sessions"]


@pytest.mark.parametrize("kind", NEW[2:])
def test_l2p_selects_prompts_for_each_image_independently(
    run: Runner, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The rest of the batch changes neither the choice nor the logits."""
    seen = watch(monkeypatch, L2PFSCIL, "test")
    train(run, kind, "FSCIL.LAST_SESSION", "1", "TRAINER.L2P.KEY_WEIGHT", "0.0")
    trainer = seen[-1][0]
    draw = torch.Generator().manual_seed(0)
    if kind == NEW[2]:
        inputs = F.normalize(torch.randn(12, 128, generator=draw), dim=1)
        queries = inputs
    else:
        inputs = torch.randn(12, 3, 32, 32, generator=draw)
        queries = trainer.clip.encode_image(inputs)
    pool = trainer.make_pool(CLASSES[:6])
    for name, value in trainer.session_models[1]["prompt_learner"].items():
        getattr(pool, name).data.copy_(value)
    if kind != NEW[2]:  # features of noise are similar: keys around their mean make the choices differ
        pool.prompt_key.data.copy_(queries[:4] - queries.mean(dim=0))
        trainer.session_models[1]["prompt_learner"]["prompt_key"] = pool.prompt_key.detach()
    chosen, _ = pool.choose(queries)
    wanted = torch.stack([F.cosine_similarity(one, pool.prompt_key).topk(2).indices.sort().values for one in queries])
    assert torch.equal(chosen, wanted)
    assert len(chosen.unique(dim=0)) > 1
    with torch.no_grad():
        score = trainer.scorer(1)
        together, alone = score(inputs), torch.cat([trainer.scorer(1)(one) for one in inputs.split(1)])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-3)
    assert together.shape == (12, 6)


def test_l2p_text_logits_match_independent_calculation(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen prompts in pool order, as the context of a CoOp prompt; and the loss with the keys."""
    losses: list[tuple[Any, ...]] = []
    original = L2PFSCIL.compute_loss

    def watched(self: Any, features: torch.Tensor, labels: torch.Tensor) -> Any:
        state = {name: value.detach().clone() for name, value in self.pool.named_parameters()}
        terms, logits = original(self, features, labels)
        losses.append((self, features, labels, state, terms["loss"].item(), logits.detach()))
        return terms, logits

    monkeypatch.setattr(L2PFSCIL, "compute_loss", watched)
    train(run, NEW[2], "FSCIL.LAST_SESSION", "1")
    trainer, features, labels, state, loss, logits = losses[-1]
    rows, keys = [], []
    for feature in features:
        cosines = F.cosine_similarity(feature, state["prompt_key"])
        best = sorted(cosines.topk(2).indices.tolist())
        learner = PromptLearner(trainer.clip, CLASSES[4:6], 4)
        learner.ctx.data.copy_(torch.cat([state["prompt"][number] for number in best]))
        rows.append(trainer.clip.logit_scale * feature @ trainer.clip.encode_prompts(learner()).t())
        keys.append(cosines[best].sum())
    torch.testing.assert_close(logits, torch.stack(rows).detach(), rtol=1e-3, atol=1e-3)
    wanted = F.cross_entropy(torch.stack(rows), labels) - 0.1 * torch.stack(keys).mean()
    assert loss == pytest.approx(float(wanted.detach()), abs=1e-4)


def test_l2p_clips_gradients(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    original = L2PFSCIL.backward

    def watched(self: Any, terms: Any) -> None:
        original(self, terms)
        norms.append(float(torch.cat([one.grad.flatten() for one in self.pool.parameters()]).norm()))

    monkeypatch.setattr(L2PFSCIL, "backward", watched)
    train(run, NEW[2], "FSCIL.LAST_SESSION", "0", "TRAINER.L2P.CLIP_NORM", "0.001")
    assert norms == pytest.approx([0.001] * len(norms), rel=1e-2)


@pytest.mark.parametrize("kind", NEW[1:])
def test_export_is_refused(run: Runner, kind: str, tmp_path: Path) -> None:
    done = load(train(run, kind, "FSCIL.LAST_SESSION", "1").folder)
    for ending in ("safetensors", "onnx"):
        with pytest.raises(UserError, match=r"FSCIL cannot be exported: .*no fixed matrix gives"):
            export(done, tmp_path / f"classes.{ending}")


def test_invalid_settings_are_refused(run: Runner) -> None:
    many = run(*L2P, "TRAINER.L2P.TOP_K", "5", trainer="L2PFSCIL")
    assert many.status == 2
    assert "TRAINER.L2P.TOP_K is 5, but the pool has POOL_SIZE 4 prompts. Choose TOP_K of at most" in many.output
    long = run(*L2P, "TRAINER.L2P.TOP_K", "2", "TRAINER.L2P.LENGTH", "37", trainer="L2PFSCIL")
    assert long.status == 2
    assert "TRAINER.L2P.TOP_K 2 times TRAINER.L2P.LENGTH 37 is a context of 74 vectors" in long.output
    batch = run(*FSPT, "FSCIL.BASE_BATCH_SIZE", "12", trainer="FSPTFSCIL")
    assert batch.status == 2
    assert "leave it at 0 and set TRAINER.FSPT.OUTER_BATCH" in batch.output
    done = train(run, NEW[2], "FSCIL.LAST_SESSION", "0")
    evaluate = ["--eval-only", "--model-dir", str(done.folder)]
    other = run(*evaluate, *VISUAL, "FSCIL.LAST_SESSION", "0", name="other", trainer="L2PFSCIL")
    assert other.status == 2
    assert "was trained with TRAINER.L2P.POOL text. Use that" in other.output
    lost = run(*FSPT, *PLAIN, "TRAINER.FSPT.INNER_LR", "1e30", trainer="FSPTFSCIL", name="lost")
    assert lost.status == 2
    assert "Try a smaller TRAINER.FSPT.INNER_LR" in lost.output


# ---------------------------------------------------------------------- CoOp-FSCIL as its source runs it


def test_names_of_later_sessions_are_in_the_loss_only(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is over all names in every session, including later ones; the evaluation over those seen."""
    losses = watch(monkeypatch, CoOpFSCIL, "compute_loss")
    done = train(run, "CoOp, sessions, names of all", "FSCIL.LAST_SESSION", "1")
    assert {int(label) for one in losses for label in one[2]} == set(range(6))
    trainer, features, labels = losses[0]
    learner = PromptLearner(trainer.clip, CLASSES, 4, seed=derive_seed(1, "context"))
    text = trainer.clip.encode_prompts(learner())
    wanted = F.cross_entropy(trainer.clip.logit_scale * features @ text.t(), labels)
    assert f"loss {float(wanted):.4f} (" in done.output
    assert [kept(done.folder, n)["cocoamix"]["classnames"] for n in (0, 1)] == [CLASSES, CLASSES]
    assert [one["classes"] for one in session_results(done)["sessions"]] == [4, 6]
    # A run that ended early loads without the names of sessions that it has not reached.
    assert load(done.folder).classes == CLASSES[:6]


def test_rates_of_coop_fscil_match_its_source() -> None:
    """One step per epoch in later sessions, at the rates of its configuration."""
    for name in ("vit_l14_source", "tiny_source"):
        config = yaml.safe_load((ROOT / "configs" / "trainers" / "CoOpFSCIL" / f"{name}.yaml").read_text())
        assert (config["FSCIL"]["TUNED_CLASSES"], config["DATALOADER"]["TRAIN_X"]["BATCH_SIZE"]) == ("all", 32)
        from dassl.config import get_cfg_default

        optim = get_cfg_default().OPTIM
        for key, value in config["OPTIM"].items():
            optim[key] = type(optim[key])(value) if not isinstance(optim[key], str) else value
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=optim.LR)
        schedule, rates = build_schedule(optimizer, optim), []
        for _ in range(optim.MAX_EPOCH):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        assert rates == pytest.approx([1e-5, 1e-3, 9.05e-4, 6.55e-4, 3.455e-4], rel=1e-3)
