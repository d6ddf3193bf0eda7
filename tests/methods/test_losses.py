"""The loss of each method and its gradient, against plain formulas on features that are encoded the slowest way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.clip import FrozenCLIP, load_clip
from cocoamix.clip.ensemble import SeveralCLIPs
from cocoamix.trainers.prograd import project
from tests.methods.modules import (
    NAMES,
    SESSIONS,
    TEMPLATE,
    build,
    finished,
    inputs_of,
    labels_of,
    learned,
    move,
    session_task,
    trainers,
    written,
)
from tests.prompts.towers import plain_image, plain_text

Terms = dict[str, Tensor]
Formula = Callable[[Any, Tensor, Tensor], Terms]  # returns the terms of the loss, among them its total


def parameters(module: Any) -> dict[str, Tensor]:
    return dict(module.parts.named_parameters())


def check(module: Any, formula: Formula, training: Sequence[str] = ()) -> Any:
    """Compare the terms of the loss and the gradient of every parameter; return the losses."""
    inputs, labels = inputs_of(module), labels_of(module)
    losses = module.loss(inputs, labels, training)
    losses.backward()
    trained = parameters(module)
    found = {name: parameter.grad for name, parameter in trained.items()}
    wanted = formula(module, inputs, labels)
    total = wanted.pop("total")
    assert float(losses.total.detach()) == pytest.approx(float(total.detach()), rel=1e-4, abs=1e-5)
    for name, value in wanted.items():
        assert float(losses.terms[name].detach()) == pytest.approx(float(value.detach()), rel=1e-3, abs=1e-5), name
    slopes = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    check_gradients(found, dict(zip(trained, slopes, strict=True)))
    return losses


def check_gradients(found: Mapping[str, Tensor | None], wanted: Mapping[str, Tensor | None]) -> None:
    for name, slope in wanted.items():
        mine = found[name]
        if slope is None or not slope.any():
            assert mine is None or not mine.any(), name
            continue
        assert mine is not None, name
        assert (mine - slope).norm() < 2e-3 * slope.norm(), name


def ce(logits: Tensor, labels: Tensor) -> Tensor:
    return -logits.softmax(dim=1)[range(len(labels)), labels].log().mean()


# ---------------------------------------------------------------------- CoOp and what builds on it


def similar(module: Any, inputs: Tensor, names: Sequence[str] = NAMES) -> Tensor:
    text = learned(module.clip, names, parameters(module)[f"{module.folder}.ctx"])
    return module.clip.logit_scale * inputs @ text.t()  # type: ignore[no-any-return]


def coop(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
    return {"total": ce(similar(module, inputs), labels)}


def kgcoop(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
    text = learned(module.clip, NAMES, parameters(module)[f"{module.folder}.ctx"])
    apart = 1 - torch.stack([a @ b for a, b in zip(text, written(module.clip, NAMES), strict=True)]).mean()
    fit = ce(module.clip.logit_scale * inputs @ text.t(), labels)
    return {"total": fit + 3 * apart, "ce": fit, "kg": apart}


def cocoop(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
    p, rows = parameters(module), []
    for feature in inputs:
        hidden = p["prompt_learner.meta_net.linear1.weight"] @ feature + p["prompt_learner.meta_net.linear1.bias"]
        shift = p["prompt_learner.meta_net.linear2.weight"] @ hidden.clamp(min=0)
        shift = shift + p["prompt_learner.meta_net.linear2.bias"]
        rows.append(100 * feature @ learned(module.clip, NAMES, p["prompt_learner.ctx"] + shift).t())
    return {"total": ce(torch.stack(rows), labels)}


def maple(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
    image = plain_image(module.clip, inputs, module.learner)
    text = plain_text(module.clip, module.learner, "a photo of a", NAMES)
    return {"total": ce(module.clip.logit_scale * image @ text.t(), labels)}


def dept(below: Callable[[Any, Tensor, Tensor], Terms]) -> Formula:
    def formula(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
        p = parameters(module)
        text = module.clip.encode_prompts_raw(module.learner())[labels]  # not normalised
        rows = []
        for features, side in ((text, "text"), (inputs, "image")):
            mapped = p[f"channel_head.{side}.scale"] * features + p[f"channel_head.{side}.shift"]
            rows.append(mapped @ p["channel_head.head.weight"].t() + p["channel_head.head.bias"])
        head = (ce(rows[0], labels) + ce(rows[1], labels)) / 2
        terms = below(module, F.normalize(inputs, dim=-1), labels)
        base = terms.pop("total")
        return {**terms, "total": 0.7 * base + 0.3 * head, "base": base, "head": head}

    return formula


def tune_en(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
    p, mixture = parameters(module), torch.zeros(())
    hidden = (inputs @ p["learn_module.0.weight"].t() + p["learn_module.0.bias"]).clamp(min=0)
    shares = (hidden @ p["learn_module.2.weight"].t() + p["learn_module.2.bias"]).softmax(dim=1)
    for number, clip in enumerate(module.clip.each()):
        features = F.normalize(inputs.chunk(2, dim=1)[number], dim=-1)
        logits = clip.logit_scale * features @ written(clip, NAMES).t()
        mixture = mixture + shares[:, number, None] * logits.softmax(dim=1)
    if module.settings.LOSS == "nll":
        return {"total": -mixture[range(len(labels)), labels].log().mean()}
    return {"total": ce(mixture / 2, labels)}  # the original code's second softmax


CASES: dict[str, tuple[str, dict[str, Any], Formula]] = {
    "CoOp": ("CoOp", {}, coop),
    "KgCoOp": ("KgCoOp", {"W": 3.0}, kgcoop),
    "CoCoOp": ("CoCoOp", {}, cocoop),
    "MaPLe": ("MaPLe", {"CTX_INIT": "a photo of a"}, maple),
    "DePT": ("DePT", {"WEIGHT": 0.3}, dept(coop)),
    "DePT on KgCoOp": ("DePTKgCoOp", {"WEIGHT": 0.3, "W": 3.0}, dept(kgcoop)),
    "CoOp-FSCIL": ("CoOpFSCIL", {}, coop),
}


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient(tiny_clip: FrozenCLIP, case: str) -> None:
    trainer, settings, formula = CASES[case]
    check(move(build(tiny_clip, trainer, **settings)), formula)


@pytest.mark.parametrize("loss", ["ce", "nll"])
def test_loss_and_gradient_of_tune_en(two_clips: SeveralCLIPs, loss: str) -> None:
    check(move(build(two_clips, "TuneEn", LOSS=loss)), tune_en)


@pytest.fixture(scope="module")
def two_clips() -> SeveralCLIPs:
    return SeveralCLIPs([load_clip("tiny", weights, precision="fp32") for weights in ("", "random")])


@pytest.mark.parametrize("strength", [1.0, 0.8])
def test_gradient_of_prograd(tiny_clip: FrozenCLIP, strength: float) -> None:
    """Of a step in conflict with the template, from which a step along the cross-entropy leads away."""
    settings = {"CTX_INIT": "a centered satellite photo of", "T": 2.0, "LAMBDA": strength}
    module = build(tiny_clip, "ProGrad", **settings)
    inputs, labels, context = inputs_of(module), labels_of(module), module.learner.ctx
    context.data -= 0.002 * torch.autograd.grad(ce(similar(module, inputs), labels), context)[0]
    logits = similar(module, inputs)
    teacher = (100 * inputs @ written(tiny_clip, NAMES).t() / 2).softmax(dim=1)
    apart = -4 * (teacher * (logits / 2).log_softmax(dim=1)).sum(dim=1).mean()
    fit = ce(logits, labels)
    (task,) = torch.autograd.grad(fit, context, retain_graph=True)
    (general,) = torch.autograd.grad(apart, context)
    assert (task * general).sum() < 0
    along = general / general.norm()
    losses = module.loss(inputs, labels)
    losses.backward(lambda loss: 8 * loss)  # as a loss scaler does
    assert float(losses.total.detach()) == pytest.approx(float(fit.detach()), rel=1e-4)
    assert float(losses.terms["kl"].detach()) == pytest.approx(float(apart.detach()), rel=1e-4)
    check_gradients({"ctx": context.grad / 8}, {"ctx": task - strength * (task * along).sum() * along})


def test_limits_of_the_projection() -> None:
    """Agreeing and zero gradients change nothing, tiny ones do; overflow reaches the loss scaler."""
    task, general = torch.tensor([[0.1, 0.2]]), torch.tensor([[0.3, -0.1]])
    assert torch.equal(project(task, general, 1.0), task)
    for one, other in ((task, 0 * task), (0 * task, task), (0 * task, 0 * task)):
        assert torch.equal(project(one, other, 1.0), one)
    tiny = project(torch.tensor([1.0, 1.0]), torch.tensor([-1e-30, 0.0]), 1.0)  # its squares are zero in fp32
    torch.testing.assert_close(tiny, torch.tensor([0.0, 1.0]))
    for bad in (math.inf, -math.inf, math.nan):
        broken = torch.tensor([[bad, 1.0]])
        assert not torch.isfinite(project(task, broken, 1.0)).all()
        assert not torch.isfinite(project(broken, task, 1.0)).all()


@pytest.mark.parametrize("trainer", [name for name in trainers() if not name.startswith("Zeroshot")])
def test_initial_values_depend_on_the_seed_alone(tiny_clip: FrozenCLIP, trainer: str) -> None:
    """Not on what ran before; every part has another draw for another seed, but weights are equal at first."""
    values = []
    for number, seed in enumerate((1, 1, 2)):
        torch.manual_seed(number)
        values.append(parameters(build(tiny_clip, trainer, seed=seed)))
    first, again, other = values
    assert all(torch.equal(first[name], again[name]) for name in first)
    drawn = {name.split(".")[0] for name in first if not torch.equal(first[name], other[name])}
    assert {name.split(".")[0] for name in first} - drawn <= {"coa_weights"}


# ---------------------------------------------------------------------- CoCoA-Mix

MIX = {"W": 3.0, "W_IN": 0.7, "W_OUT": 4.0, "MARGIN": 0.3, "TEMPLATE": "dataset"}
PROMPT, WEIGHTS = "prompt_learner", "coa_weights"


def sides(module: Any, inputs: Tensor, names: Sequence[str], contexts: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return the similarities of the template and of contexts, each the mean over the models."""
    clips = module.clip.each()
    parts = [F.normalize(part, dim=-1) for part in inputs.chunk(len(clips), dim=1)]
    texts = [[written(clip, names) for clip in clips]]
    texts += [[learned(clip, names, one) for clip, one in zip(clips, each, strict=True)] for each in contexts]
    return [sum(f @ t.t() for f, t in zip(parts, text, strict=True)) / len(clips) for text in texts]  # type: ignore[misc]


def entropy(logits: Tensor) -> Tensor:
    p = logits.softmax(dim=1)
    return -(p * p.log()).sum(dim=1) / math.log(logits.shape[1])


def prompt_loss(logits: Tensor, labels: Tensor) -> Terms:
    right = logits.softmax(dim=1)[range(len(labels)), labels]
    return {"ce": -right.log().mean(), "coa": (1 - right).mean()}


def mixture(earlier: Sequence[tuple[Sequence[Tensor], float]] = (), out_names: Sequence[str] = ()) -> Formula:
    """Return the formulas of one stage, or of the second of two. `earlier` has each session's context and alpha^out."""

    def formula(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
        scale, stage, p = module.clip.logit_scale, module.settings.STAGE, parameters(module)
        context = [value for name, value in p.items() if name.endswith("ctx")]
        a_in, a_out = p["coa_weights.inside"][0], p["coa_weights.outside"][0]
        contexts = [*(each for each, _ in earlier), [one.detach() for one in context]]
        s = [side.detach() for side in sides(module, inputs, module.classnames, contexts)]
        out = [side.detach() for side in sides(module, inputs, out_names or module.out_names, contexts[-1:])]
        if stage == "one":
            mixed = scale * s[0] + a_in.exp() * s[1]
            lost = entropy(scale * out[0]) - entropy(a_out.exp() * out[1])
        else:
            shares = [[*(torch.tensor(v).exp() for _, v in earlier), a.exp()] for a in (a_in, a_out)]
            inside, outside = ([1 / (1 + sum(each)), *(one / (1 + sum(each)) for one in each)] for each in shares)
            mixed = scale * sum(pi * side for pi, side in zip(inside, s, strict=True))
            lost = entropy(scale * outside[0] * out[0]) - entropy(scale * outside[-1] * out[1])
        assert ((lost + 0.3) > 0).any()
        terms = {"mix": ce(mixed, labels), "ent": (lost + 0.3).clamp_min(0).mean()}
        total = 0.7 * terms["mix"] + 4 * terms["ent"]
        if stage == "one":
            terms |= prompt_loss(scale * sides(module, inputs, NAMES, [context])[1], labels)
            total = total + terms["ce"] + 3 * terms["coa"]
        return {"total": total, **terms}

    return formula


@pytest.mark.parametrize("backbones", [1, 2])
@pytest.mark.parametrize("stage", ["one", "two"])
def test_loss_and_gradient_of_cocoamix(
    tiny_clip: FrozenCLIP, two_clips: SeveralCLIPs, stage: str, backbones: int
) -> None:
    """The prompt's terms never reach the weights, and those of the weights never reach the prompt."""
    clip = SeveralCLIPs([tiny_clip]) if backbones == 1 else two_clips
    module = move(build(clip, "CoCoAMix", STAGE=stage, **MIX))
    losses = check(module, mixture(), (PROMPT, WEIGHTS) if stage == "one" else (WEIGHTS,))
    assert module.templates == [TEMPLATE]
    assert len(module.out_names) == len(NAMES)
    assert not {name.lower() for name in module.out_names} & {name.lower() for name in NAMES}
    assert set(losses.terms) >= {"mix", "ent", "acc_mix", "pi_in", "pi_out"}
    for side, name in (("inside", "pi_in"), ("outside", "pi_out")):
        value = float(getattr(module.weights, side).detach())
        share = math.exp(value) / (math.exp(value) + (module.clip.logit_scale if stage == "one" else 1))
        assert float(losses.terms[name]) == pytest.approx(share, rel=1e-4)


def test_first_stage_trains_the_prompt_alone(tiny_clip: FrozenCLIP) -> None:
    module = move(build(tiny_clip, "CoCoAMix", STAGE="two", **MIX))

    def formula(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
        logits = module.clip.logit_scale * sides(module, inputs, NAMES, [[module.learners[0].ctx]])[1]
        terms = prompt_loss(logits, labels)
        return {"total": terms["ce"] + 3 * terms["coa"], **terms}

    losses = check(module, formula, (PROMPT,))
    assert set(losses.terms) == {"ce", "coa"}
    accuracy = losses.logits.argmax(dim=1) == labels_of(module)
    assert 0 < int(accuracy.sum()) < len(accuracy)


@pytest.mark.parametrize(
    ("settings", "formula"),
    [
        ({"LOSS": "ce"}, lambda p: -p.log()),
        ({"LOSS": "coa"}, lambda p: 1 - p),
        ({"LOSS": "focal", "GAMMA": 3.5}, lambda p: -((1 - p) ** 3.5) * p.log()),
        ({"LOSS": "gce", "Q": 0.4}, lambda p: (1 - p**0.4) / 0.4),
        ({"LOSS": "ce+mae", "W": 3.0}, lambda p: -p.log() + 3 * 2 * (1 - p) / len(NAMES)),
        ({"LOSS": "ce+coa", "W": 0.5}, lambda p: -p.log() + 0.5 * (1 - p)),
    ],
)
def test_losses_of_the_prompt_use_their_settings(
    tiny_clip: FrozenCLIP, settings: dict[str, Any], formula: Callable[[Tensor], Tensor]
) -> None:
    module = move(build(tiny_clip, "CoCoAMix", ENSEMBLE="none", **settings))

    def by_hand(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
        logits = module.clip.logit_scale * sides(module, inputs, NAMES, [[module.learners[0].ctx]])[1]
        return {"total": formula(logits.softmax(dim=1)[range(len(labels)), labels]).mean()}

    check(module, by_hand)


def test_without_out_classes_the_weights_have_one_loss(tiny_clip: FrozenCLIP) -> None:
    module = move(build(tiny_clip, "CoCoAMix", STAGE="two", OUT_CLASSES="none"))
    losses = module.loss(inputs_of(module), labels_of(module), (WEIGHTS,))
    losses.backward()
    assert "ent" not in losses.terms
    assert module.out_names == []
    assert module.weights.outside.grad is None or not module.weights.outside.grad.any()
    assert module.weights.inside.grad.any()


def test_loss_and_gradient_of_later_sessions(tiny_clip: FrozenCLIP) -> None:
    """The new session's weights beside those of earlier sessions, whose classes are its out-classes."""
    done: list[Any] = []
    earlier: list[tuple[list[Tensor], float]] = []
    for session in range(3):
        task = session_task("CoCoAMixFSCIL", session, done)
        module = move(build(tiny_clip, "CoCoAMixFSCIL", task=task, **MIX))
        module.weights.outside.data.add_(0.2 * session)
        if session:
            seen = [name for names in SESSIONS[:session] for name in names]
            check(module, mixture(earlier, seen), (WEIGHTS,))
        state = finished(module)
        done.append(state)
        earlier.append(([state[PROMPT]["ctx"]], float(state[WEIGHTS]["outside"])))
    assert len({round(value, 4) for _, value in earlier}) == 3


# ---------------------------------------------------------------------- sessions of other methods


def test_loss_and_gradient_of_fact(tiny_clip: FrozenCLIP) -> None:
    module = move(build(tiny_clip, "FACTFSCIL", BALANCE=0.2))
    p = {name.removeprefix("prototypes."): value for name, value in parameters(module).items()}

    def embed(features: Tensor) -> Tensor:
        hidden = F.linear(features, p["network.inner.weight"], p["network.inner.bias"]).clamp(min=0)
        return features + F.linear(hidden, p["network.outer.weight"], p["network.outer.bias"])

    def near(features: Tensor, rows: Tensor) -> Tensor:
        return 16 * F.cosine_similarity(embed(features)[:, None], rows[None], dim=-1)

    def left(logits: Tensor, taken: Tensor, target: Tensor) -> Tensor:
        """Return the cross-entropy of `target` without the logits that are taken."""
        without = [torch.cat([row[:i], row[i + 1 :]]) for row, i in zip(logits, taken.tolist(), strict=True)]
        shifted = target - (target > taken).long()
        return ce(torch.stack(without), shifted)

    def formula(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
        torch.manual_seed(9)
        order = torch.randperm(len(labels))
        share = float(torch.distributions.Beta(0.5, 0.5).sample())
        pairs = [(i, int(j)) for i, j in enumerate(order) if labels[i] != labels[j]]
        mixed = torch.stack([share * inputs[i] + (1 - share) * inputs[j] for i, j in pairs])
        classes, fixed = len(p["prototypes"]), module.learned.fixed
        own, room = (
            near(inputs, p["prototypes"]),
            near(inputs, fixed).masked_fill(~module.learned.open_to[labels], -math.inf),
        )
        second = left(torch.cat([own, near(inputs, fixed)], dim=1), labels, classes + room.argmax(dim=1))
        between = near(mixed, torch.cat([p["prototypes"], p["virtual"]]))
        best = classes + between[:, classes:].argmax(dim=1)
        terms = {"base": ce(own, labels)}
        terms["room"] = second + ce(between, best) + left(between, best, between[:, :classes].argmax(dim=1))
        return {"total": terms["base"] + 0.2 * terms["room"], **terms}

    torch.manual_seed(9)
    check(module, formula)


def test_inner_and_outer_steps_of_fspt(tiny_clip: FrozenCLIP) -> None:
    """One step of the fast context per support image, which stays, then the loss of the query for both."""
    module = move(build(tiny_clip, "FSPTFSCIL", INNER_LR=0.5))
    support, labels = inputs_of(module, 4, 1), labels_of(module, 4)
    slow, fast = (parameters(module)[f"prompt_learner.{name}"].detach().clone() for name in ("ctx", "fast_ctx"))
    for feature, label in zip(support, labels, strict=True):
        fast = fast.requires_grad_()
        logits = tiny_clip.logit_scale * feature[None] @ learned(tiny_clip, NAMES, torch.cat([slow, fast])).t()
        fast = (fast - 0.5 * torch.autograd.grad(ce(logits, label[None]), fast)[0]).detach()
    moved = module.learner.fast_ctx.detach().clone()
    module.adapt(support, labels)
    moved = (module.learner.fast_ctx - moved).norm()
    assert (module.learner.fast_ctx - fast).norm() < 1e-3 * moved
    assert torch.equal(module.learner.ctx, slow)

    def query(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
        context = torch.cat([module.learner.ctx, module.learner.fast_ctx])
        return {"total": ce(tiny_clip.logit_scale * inputs @ learned(tiny_clip, NAMES, context).t(), labels)}

    check(module, query)


@pytest.mark.parametrize("pool", ["text", "visual"])
def test_loss_and_gradient_of_l2p(tiny_clip: FrozenCLIP, pool: str) -> None:
    """Each image with its own two prompts; gradients clipped to a norm."""
    module = build(tiny_clip, "L2PFSCIL", POOL=pool, KEY_WEIGHT=0.5, CLIP_NORM=0.0)
    inputs = inputs_of(module)
    queries = inputs if pool == "text" else tiny_clip.encode_image(inputs)
    with torch.no_grad():  # features of noise are similar: keys around their mean make the choices differ
        module.pool.prompt_key.copy_(queries[:4] - queries.mean(dim=0))

    def formula(module: Any, inputs: Tensor, labels: Tensor) -> Terms:
        prompt, keys = (parameters(module)[f"prompt_learner.{name}"] for name in ("prompt", "prompt_key"))
        rows, near = [], []
        for image, query in zip(inputs, queries, strict=True):
            cosines = F.cosine_similarity(query, keys, dim=-1)
            best = sorted(cosines.topk(2).indices.tolist())
            near.append(cosines[best].sum())
            tokens = torch.cat([prompt[number] for number in best])
            if pool == "text":
                rows.append(tiny_clip.logit_scale * query @ learned(tiny_clip, NAMES, tokens).t())
                continue
            tokens = tokens + tiny_clip.visual.positional_embedding[0]
            (feature,) = tiny_clip.encode_image_with(image[None], [tokens])
            rows.append(tiny_clip.logit_scale * feature @ written(tiny_clip, NAMES).t())
        terms = {"ce": ce(torch.stack(rows), labels), "key": torch.stack(near).mean()}
        return {"total": terms["ce"] - 0.5 * terms["key"], **terms}

    check(module, formula)
    whole = {name: parameter.grad.clone() for name, parameter in parameters(module).items()}  # type: ignore[union-attr]
    norm = float(torch.cat([slope.flatten() for slope in whole.values()]).norm())
    clipped = build(tiny_clip, "L2PFSCIL", POOL=pool, KEY_WEIGHT=0.5, CLIP_NORM=norm / 4)
    with torch.no_grad():
        clipped.pool.prompt_key.copy_(module.pool.prompt_key)
    losses = clipped.loss(inputs, labels_of(module))
    losses.backward(lambda loss: 8 * loss)  # the caller removes the scale, then clips
    for parameter in parameters(clipped).values():
        assert parameter.grad is not None
        parameter.grad /= 8
    losses.clip()
    found = {name: parameter.grad for name, parameter in parameters(clipped).items()}
    clipped.zero_grad()
    clipped.loss(inputs, labels_of(module)).backward()
    check_gradients({name: parameter.grad for name, parameter in parameters(clipped).items()}, found)
    check_gradients(found, {name: slope / 4 for name, slope in whole.items()})
