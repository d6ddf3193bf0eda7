"""CoCoA-Mix's evaluations and steps against a calculation by hand from image and text features.

The weights are chosen, so that no two quantities coincide, and read as plain numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.backbones import BACKBONES
from cocoamix.io import checkpoints
from tests.clip.test_model import original
from tests.conftest import CLASSES, Runner
from tests.trainers import by_hand
from tests.trainers.by_hand import Context, Step, hand_crafted, learned

ADAM = ["OPTIM.NAME", "adam", "OPTIM.LR", "0.002", "OPTIM.WARMUP_EPOCH", "0"]
BASE = ["DATASET.NUM_SHOTS", "4", "DATASET.SUBSAMPLE_CLASSES", "base", *ADAM]
MIX, SESSIONS = {"trainer": "CoCoAMix"}, {"trainer": "CoCoAMixFSCIL"}
# pi^in = 0.69 and pi^out = 0.29 in both stages.
INSIDE, OUTSIDE = {"one": math.log(60.0), "two": 0.8}, {"one": math.log(11.0), "two": -0.9}
SPACES = {"base": range(5), "new": range(5, 10), "all": range(10)}


def keys(**values: object) -> list[str]:
    return [part for key, value in values.items() for part in (f"TRAINER.COCOAMIX.{key}", str(value))]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[FrozenCLIP], list[str]]:
    """Two models with highly asymmetric weights and their own temperatures, and their files."""
    folder = tmp_path_factory.mktemp("weights")
    files = [str(folder / f"{seed}.pt") for seed in (3, 4)]
    for seed, file in zip((3, 4), files, strict=True):
        torch.save(original(BACKBONES["tiny"].sizes, seed).state_dict(), file)
    clips = [load_clip("tiny", file, precision="fp32") for file in files]
    assert 20 < clips[0].logit_scale < 30  # not 100, which it might be confused with
    return clips, files


def backbones(files: Sequence[str], count: int) -> list[str]:
    if count == 1:
        return ["MODEL.BACKBONE.WEIGHTS", files[0]]
    return keys(BACKBONES=["tiny"] * count, BACKBONE_WEIGHTS=list(files[:count]))


def draw_context(seed: int, models: int, vectors: int) -> Context:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(vectors, 128, generator=generator) * 0.3 for _ in range(models)]


def named(context: Context) -> dict[str, Tensor]:
    """Return the contexts by their names in a checkpoint."""
    return {"ctx" if len(context) == 1 else f"{number}.ctx": one for number, one in enumerate(context)}


def put_into(path: Path, values: dict[str, Tensor]) -> None:
    """Replace tensors of a checkpoint."""
    content = checkpoints.load(path)
    for key, value in values.items():
        assert content["state_dict"][key].shape == value.shape
    checkpoints.save(path, {**content, "state_dict": {**content["state_dict"], **values}})


def near(value: Tensor | float, accuracy: float = 1e-5) -> Any:
    return pytest.approx(float(torch.as_tensor(value).detach()), rel=accuracy, abs=accuracy)


# ---------------------------------------------------------------------- evaluation


class Checkpoint:
    """A trained run whose context and weights were replaced with chosen ones."""

    def __init__(
        self, run: Runner, models: tuple[list[FrozenCLIP], list[str]], stage: str, count: int, *settings: str
    ) -> None:
        self.run, self.clips = run, models[0][:count]
        self.settings = [*BASE, *backbones(models[1], count), *settings, *keys(N_CTX=3, STAGE=stage, WEIGHT_EPOCHS=1)]
        done = run(*self.settings, "OPTIM.MAX_EPOCH", "1", name="trained", **MIX)
        assert done.status == 0, done.output[-800:]
        self.folder, self.context = done.folder, draw_context(5, count, 3)
        name = f"model.pth.tar-{1 if stage == 'one' else 2}"
        put_into(done.folder / "prompt_learner" / name, named(self.context))
        weights = {"inside": INSIDE[stage], "outside": OUTSIDE[stage]}
        put_into(done.folder / "coa_weights" / name, {key: torch.tensor([value]) for key, value in weights.items()})

    def evaluate(self, space: str, *extra: str) -> Any:
        settings = [space if part == "base" else part for part in self.settings]
        name = f"{space}{len(list(self.folder.parent.iterdir()))}"
        done = self.run("--eval-only", "--model-dir", str(self.folder), *settings, *extra, name=name, **MIX)
        assert done.status == 0, done.output[-800:]
        return done

    def sides(self, root: Path, space: str, templates: Sequence[str] = ("a photo of a {}.",)) -> tuple[Tensor, ...]:
        """Return the similarities of the two prompts, and the labels."""
        pixels, labels = by_hand.read_test_images(root, SPACES[space])
        batch = [clip.encode_image(pixels) for clip in self.clips]
        names = [CLASSES[label] for label in SPACES[space]]
        return (
            hand_crafted(self.clips, batch, names, templates),
            learned(self.clips, batch, names, self.context),
            labels,
        )


def shares(stage: str, scale: float) -> tuple[float, float]:
    """Return pi^in and pi^out by the definitions of one and two stages."""
    if stage == "two":
        return tuple(math.exp(a) / (1 + math.exp(a)) for a in (INSIDE["two"], OUTSIDE["two"]))  # type: ignore[return-value]
    taus = [math.exp(-a) for a in (INSIDE["one"], OUTSIDE["one"])]
    return tuple((1 / scale) / (1 / scale + tau) for tau in taus)  # type: ignore[return-value]


def assert_metrics(metrics: dict[str, float], logits: Tensor, labels: Tensor, space: str) -> None:
    hits = (logits.argmax(dim=1) == labels).double()
    assert metrics["accuracy"] == near(100 * hits.mean())
    assert metrics["error_rate"] == near(100 - 100 * hits.mean())
    found, scores = logits.argmax(dim=1), []
    for label in labels.unique():
        right = int(((found == label) & (labels == label)).sum())
        scores.append(2 * right / int((found == label).sum() + (labels == label).sum()))
    assert metrics["macro_f1"] == near(100 * sum(scores) / len(scores))
    if space == "all":
        base, new = (float(100 * hits[side].mean()) for side in (labels < 5, labels >= 5))
        assert (metrics["base_accuracy"], metrics["new_accuracy"]) == (near(base), near(new))
        assert metrics["harmonic_mean"] == near(2 * base * new / (base + new) if base + new else 0)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("stage", ["one", "two"])
def test_logits_of_each_label_space_match_manual_calculation(
    run: Runner,
    models: tuple[list[FrozenCLIP], list[str]],
    data_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    count: int,
) -> None:
    """One kind of classes: s_0/tau_0 + s_1/tau_1 in one stage, pi in two; both kinds: pi of each class, CLIP's tau."""
    checkpoint, scale = Checkpoint(run, models, stage, count), models[0][0].logit_scale
    seen = by_hand.watch_evaluations(monkeypatch)
    inside, outside = shares(stage, scale)
    assert (inside, outside) == (pytest.approx(0.69, abs=0.01), pytest.approx(0.29, abs=0.01))
    for space in SPACES:
        s_0, s_1, labels = checkpoint.sides(data_root, space)
        if space == "all":
            pi = torch.tensor([inside] * 5 + [outside] * 5, dtype=torch.float64)
            wanted = scale * ((1 - pi) * s_0 + pi * s_1)
        elif stage == "one":
            wanted = scale * s_0 + math.exp(INSIDE["one"] if space == "base" else OUTSIDE["one"]) * s_1
        else:
            pi = inside if space == "base" else outside  # type: ignore[assignment]
            wanted = scale * ((1 - pi) * s_0 + pi * s_1)
        done = checkpoint.evaluate(space)
        torch.testing.assert_close(torch.cat(seen.pop()).double(), wanted, atol=1e-4, rtol=0)
        assert_metrics(done.results["metrics"], wanted, labels, space)
        span = {"base": (inside, inside), "new": (outside, outside), "all": (outside, inside)}[space]
        printed = re.search(r"learned prompt: ([\d.]+) to ([\d.]+)", done.output)
        assert printed is not None
        assert [float(x) for x in printed.groups()] == pytest.approx(span, abs=6e-5)


def test_logits_of_other_settings_match_manual_calculation(
    run: Runner, models: tuple[list[FrozenCLIP], list[str]], data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ensembles, forced domains, and a mean over two templates."""
    templates = ["a photo of a {}.", "{} texture."]
    checkpoint = Checkpoint(run, models, "one", 1, *keys(TEMPLATE=templates))
    scale, seen = models[0][0].logit_scale, by_hand.watch_evaluations(monkeypatch)
    s_0, s_1, _ = checkpoint.sides(data_root, "all", templates)
    inside, outside = (scale * s_0 + math.exp(one["one"]) * s_1 for one in (INSIDE, OUTSIDE))
    wanted = {
        ("ENSEMBLE", "uniform"): scale * (s_0 + s_1) / 2,
        ("ENSEMBLE", "none"): scale * s_1,
        ("DOMAIN", "in"): inside,
        ("DOMAIN", "out"): outside,
    }
    for (key, value), logits in wanted.items():
        checkpoint.evaluate("all", *keys(**{key: value}))
        torch.testing.assert_close(torch.cat(seen.pop()).double(), logits, atol=1e-4, rtol=0)


def test_two_equal_models_match_a_single_one(
    run: Runner, models: tuple[list[FrozenCLIP], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same context before each, the mean of their similarities is that of one."""
    twins = ([models[0][0]] * 2, [models[1][0]] * 2)
    seen = by_hand.watch_evaluations(monkeypatch)
    for count in (1, 2):
        checkpoint = Checkpoint(run, twins, "one", count)
        same = named([draw_context(5, 1, 3)[0]] * count)
        put_into(checkpoint.folder / "prompt_learner" / "model.pth.tar-1", same)
        checkpoint.evaluate("all")
        checkpoint.folder.rename(checkpoint.folder.with_name(f"models{count}"))
    one, two = (torch.cat(seen[place]) for place in (1, 3))
    torch.testing.assert_close(two, one, atol=1e-4, rtol=0)
    assert one.std() > 1


# ---------------------------------------------------------------------- steps

STEP = {"W": 3.0, "W_IN": 0.7, "W_OUT": 4.0, "MARGIN": 0.3, "N_CTX": 3}


def context_of(state: dict[str, Tensor], requires_grad: bool = False) -> Context:
    found = [value for key, value in sorted(state.items()) if key.endswith("ctx")]
    return [one.clone().requires_grad_(requires_grad) for one in found]


def assert_prompt_loss(step: Step, clips: Sequence[FrozenCLIP], names: Sequence[str]) -> None:
    """CE + w CoA of only the learned prompt: the terms, and the gradient of every context."""
    context = context_of(step.before, requires_grad=True)
    batch = by_hand.split_features(step.features, len(clips))
    logits = clips[0].logit_scale * learned(clips, batch, names, context)
    right = logits.softmax(dim=1)[range(len(step.labels)), step.labels]
    ce, coa = -right.log().mean(), (1 - right).mean()
    assert (step.shown["ce"], step.shown["coa"]) == (near(ce), near(coa))
    (ce + STEP["W"] * coa).backward()
    found = [value for key, value in sorted(step.gradients.items()) if key.endswith("ctx")]
    for one, gradient in zip(context, found, strict=True):
        assert one.grad is not None
        assert gradient is not None
        assert (gradient - one.grad).norm() < 1e-4 * one.grad.norm()
    assert step.shown["acc"] == near(100 * (logits.argmax(dim=1) == step.labels).double().mean())


def assert_weight_losses(
    step: Step,
    clips: Sequence[FrozenCLIP],
    names: Sequence[str],
    out_names: Sequence[str],
    earlier: Sequence[tuple[Context, float]] = (),
) -> None:
    """The mixture's cross-entropy and the entropy loss, and the closed forms of their gradients.

    `earlier` has the context and alpha^out of each earlier session.
    """
    scale, stage = clips[0].logit_scale, "two" if step.phase == "weights" else "one"
    batch = by_hand.split_features(step.features, len(clips))
    a_in, a_out = (float(step.before[f"coa_weights.{side}"]) for side in ("inside", "outside"))
    contexts = [*(context for context, _ in earlier), context_of(step.before)]
    sides = torch.stack([hand_crafted(clips, batch, names), *(learned(clips, batch, names, one) for one in contexts)])
    # The shares of the prompts on own classes, and how each grows with a_in: pi_i (1[i is the last] - pi_last).
    if stage == "one":
        mixed, slope = scale * sides[0] + math.exp(a_in) * sides[1], math.exp(a_in) * sides[1]
        raw_in, raw_out = [1.0, math.exp(a_in) / scale], [1.0, math.exp(a_out) / scale]
    else:
        raw = [1.0, *(math.exp(outside) for _, outside in earlier)]
        raw_in, raw_out = [*raw, math.exp(a_in)], [*raw, math.exp(a_out)]
        pi = [one / sum(raw_in) for one in raw_in]
        rises = [share * ((place == len(pi) - 1) - pi[-1]) for place, share in enumerate(pi)]
        mixed = scale * sum(share * side for share, side in zip(pi, sides, strict=True))
        slope = scale * sum(rise * side for rise, side in zip(rises, sides, strict=True))
    assert step.shown["pi_in"] == near(raw_in[-1] / sum(raw_in))
    assert step.shown["pi_out"] == near(raw_out[-1] / sum(raw_out))
    assert step.shown["mix"] == near(by_hand.cross_entropy(mixed, step.labels))
    assert step.shown["acc_mix"] == near(100 * (mixed.argmax(dim=1) == step.labels).double().mean())
    wanted = STEP["W_IN"] * (by_hand.cross_entropy_slope(mixed, step.labels) * slope).sum()
    assert step.gradients["coa_weights.inside"].item() == near(wanted, 1e-4)  # type: ignore[union-attr]

    s_0, s_1 = hand_crafted(clips, batch, out_names), learned(clips, batch, out_names, contexts[-1])
    first, last = raw_out[0] / sum(raw_out), raw_out[-1] / sum(raw_out)
    if stage == "one":  # tau_0 is CLIP's and is fixed
        scales, rises = (scale, math.exp(a_out)), [0.0, math.exp(a_out)]
    else:
        scales, rises = (scale * first, scale * last), [-scale * first * last, scale * last * (1 - last)]
    lost = by_hand.entropy(scales[0] * s_0) - by_hand.entropy(scales[1] * s_1) + STEP["MARGIN"]
    assert (lost > 0).sum() > 0
    assert step.shown["ent"] == near(lost.clamp_min(0).mean())
    slopes = by_hand.entropy_slope(s_0, scales[0]) * rises[0] - by_hand.entropy_slope(s_1, scales[1]) * rises[1]
    wanted = STEP["W_OUT"] * (slopes * (lost > 0)).mean()
    assert wanted > 1e-3
    assert step.gradients["coa_weights.outside"].item() == near(wanted, 1e-4)  # type: ignore[union-attr]


def assert_total(step: Step) -> None:
    """The total is the sum of exactly the terms of the phase."""
    parts = {"ce": 1.0, "coa": STEP["W"]} if step.phase != "weights" else {}
    parts |= {"mix": STEP["W_IN"], "ent": STEP["W_OUT"]} if step.phase != "prompt" else {}
    extra = {"acc_mix", "pi_in", "pi_out"} if step.phase != "prompt" else set()
    assert set(step.shown) == {"loss", "acc", *parts, *extra}
    assert step.shown["loss"] == near(sum(weight * step.shown[key] for key, weight in parts.items()))


def assert_updates(step: Step) -> None:
    """The first step of Adam for the prompt, and of SGD for the weights; what the phase does not train is unchanged."""
    for key, before in step.before.items():
        gradient, after = step.gradients[key], step.after[key]
        trained = step.phase in ("both", "prompt" if key.startswith("prompt") else "weights")
        if not trained:
            assert gradient is None
            assert torch.equal(before, after)
            continue
        assert gradient is not None
        whole = gradient + 5e-4 * before  # weight decay
        moved = 0.002 * whole / (whole.abs() + 1e-8) if key.startswith("prompt") else 0.05 * whole
        torch.testing.assert_close(after, before - moved, atol=2e-6, rtol=1e-5)
        assert not torch.equal(after, before)


def first_steps(steps: Sequence[Step]) -> dict[tuple[int, str], Step]:
    """Return the first step of each session and phase."""
    found: dict[tuple[int, str], Step] = {}
    for step in steps:
        found.setdefault((step.session, step.phase), step)
    return found


@pytest.mark.parametrize(("stage", "count"), [("one", 1), ("one", 2), ("two", 1), ("two", 2)])
def test_a_step_of_each_stage_matches_manual_calculation(
    run: Runner,
    models: tuple[list[FrozenCLIP], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    count: int,
) -> None:
    def prepare(trainer: Any) -> None:
        if not steps:
            trainer.weights.inside.data.fill_(INSIDE[stage])
            trainer.weights.outside.data.fill_(OUTSIDE[stage])
            for mine, chosen in zip(trainer.learners, draw_context(6, count, 3), strict=True):
                mine.ctx.data.copy_(chosen)

    steps = by_hand.watch_steps(monkeypatch, prepare)
    settings = [*backbones(models[1], count), *keys(**STEP, STAGE=stage, WEIGHT_EPOCHS=1, WEIGHT_LR=0.05)]
    done = run(*BASE, *settings, "OPTIM.MAX_EPOCH", "1", **MIX)
    assert done.status == 0, done.output[-800:]
    weights = checkpoints.load(done.folder / "coa_weights" / f"model.pth.tar-{1 if stage == 'one' else 2}")
    out_names, names, clips = weights["cocoamix"]["out_classes"], CLASSES[:5], models[0][:count]
    assert len(out_names) == 5
    found = first_steps(steps)
    assert {phase for _, phase in found} == ({"both"} if stage == "one" else {"prompt", "weights"})
    for (_, phase), step in found.items():
        assert_total(step)
        assert_updates(step)
        if phase != "weights":
            assert_prompt_loss(step, clips, names)
        if phase != "prompt":
            assert_weight_losses(step, clips, names, out_names)


# ---------------------------------------------------------------------- sessions

SPLIT = ["FSCIL.BASE", "4", "FSCIL.WAY", "2", "FSCIL.SHOTS", "2", "FSCIL.BASE_WEIGHT_EPOCHS", "1"]
SPLIT += ["FSCIL.WEIGHT_EPOCHS", "1", "OPTIM.MAX_EPOCH", "1", *ADAM]
OWN = [range(4), range(4, 6), range(6, 8), range(8, 10)]  # classes of each session
ALPHA = [(0.8, -0.9), (-0.4, 0.35), (1.3, -0.15), (0.5, -0.6)]  # in and out, chosen for each session


def test_a_step_of_each_phase_of_sessions_matches_manual_calculation(
    run: Runner, models: tuple[list[FrozenCLIP], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions 0 and 2: the first has generated out-classes, the other those of both earlier sessions."""

    def prepare(trainer: Any) -> None:
        if trainer.phase == "prompt":  # before the weights are trained
            trainer.weights.inside.data.fill_(ALPHA[trainer.session][0])
            trainer.weights.outside.data.fill_(ALPHA[trainer.session][1])

    steps = by_hand.watch_steps(monkeypatch, prepare)
    settings = [*SPLIT, *backbones(models[1], 1), *keys(**STEP, STAGE="two", WEIGHT_LR=0.05), "FSCIL.LAST_SESSION", "2"]
    done = run(*settings, **SESSIONS)
    assert done.status == 0, done.output[-800:]
    found, clips = first_steps(steps), models[0][:1]
    kept = [checkpoints.load(done.folder / "sessions" / f"session-{session}.pth") for session in range(3)]
    states = [one["models"] for one in kept]
    pairs = [(context_of(one["prompt_learner"]), float(one["coa_weights"]["outside"])) for one in states]
    for session in (0, 2):
        names = [CLASSES[label] for label in OWN[session]]
        out_names = CLASSES[:6] if session else kept[0]["cocoamix"]["out_classes"]
        assert_prompt_loss(found[session, "prompt"], clips, names)
        assert_weight_losses(found[session, "weights"], clips, names, out_names, pairs[:session])
        for phase in ("prompt", "weights"):
            assert_total(found[session, phase])
            assert_updates(found[session, phase])


@pytest.mark.parametrize("count", [1, 2])
def test_logits_after_each_session_match_manual_calculation(
    run: Runner,
    models: tuple[list[FrozenCLIP], list[str]],
    data_root: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    """On all classes seen so far: pi^in of a class's own session, pi^out of the others, CLIP's tau."""
    settings = [*SPLIT, *backbones(models[1], count), *keys(N_CTX=3, STAGE="two")]
    done = run(*settings, name="trained", **SESSIONS)
    assert done.status == 0, done.output[-800:]
    contexts = [draw_context(session, count, 3) for session in range(4)]
    for session, (inside, outside) in enumerate(ALPHA):
        path = done.folder / "sessions" / f"session-{session}.pth"
        weights = {"inside": torch.tensor([inside]), "outside": torch.tensor([outside])}
        chosen = {"prompt_learner": named(contexts[session]), "coa_weights": weights}
        checkpoints.save(path, {**checkpoints.load(path), "models": chosen})
    seen = by_hand.watch_evaluations(monkeypatch)
    again = run("--eval-only", "--model-dir", str(done.folder), *settings, name="evaluated", **SESSIONS)
    assert again.status == 0, again.output[-800:]

    clips, scale = models[0][:count], models[0][0].logit_scale
    pixels, labels = by_hand.read_test_images(data_root, range(10))
    batch = [clip.encode_image(pixels) for clip in clips]
    sides = [hand_crafted(clips, batch, CLASSES), *(learned(clips, batch, CLASSES, one) for one in contexts)]
    assert len(seen) == 4
    for last, batches in enumerate(seen):
        shown = labels < OWN[last].stop
        wanted = torch.zeros(int(shown.sum()), OWN[last].stop, dtype=torch.float64)
        for owner, own in enumerate(OWN[: last + 1]):
            raw = [1.0, *(math.exp(ALPHA[number][number != owner]) for number in range(last + 1))]
            for label in own:
                mixed = sum(share / sum(raw) * side[shown, label] for share, side in zip(raw, sides, strict=False))
                wanted[:, label] = scale * mixed
        torch.testing.assert_close(torch.cat(batches).double(), wanted, atol=1e-4, rtol=0)
        hits = (wanted.argmax(dim=1) == labels[shown]).double()
        assert again.results["sessions"][last]["accuracy"] == near(100 * hits.mean())
    base, new = (float(100 * hits[side].mean()) for side in (labels < 4, labels >= 4))
    metrics = again.results["metrics"]
    assert (metrics["base_accuracy"], metrics["new_accuracy"]) == (near(base), near(new))
    assert metrics["harmonic_mean"] == near(2 * base * new / (base + new) if base + new else 0)
