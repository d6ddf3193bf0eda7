"""The classifier of each method: any label space, by hand and in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.clip import FrozenCLIP, load_clip, templates
from cocoamix.clip.ensemble import SeveralCLIPs
from cocoamix.errors import UserError
from cocoamix.model import IMAGES, Task
from cocoamix.run.trained_prompt import TrainedPrompt
from tests.methods.modules import (
    NAMES,
    OTHERS,
    SESSIONS,
    TEMPLATE,
    WIDTH,
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

SPACES = {"own": NAMES, "other": OTHERS, "some": [NAMES[2], NAMES[0]], "all": [*NAMES, *OTHERS]}
# Settings that give a method another form of classifier.
FORMS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in trainers()),
    ("CoOp", {"ENSEMBLE": "uniform", "CLASS_TOKEN_POSITION": "middle"}),
    ("CoCoOp", {"ENSEMBLE": "uniform"}),
    ("DePT", {"ENSEMBLE": "uniform", "WEIGHT": 0.2}),
    ("CoCoAMix", {"STAGE": "two"}),
    ("CoCoAMix", {"STAGE": "two", "CENTRE": True}),
    ("CoCoAMix", {"CENTRE": True, "OUT_CLASSES": "none"}),
    ("CoCoAMix", {"DOMAIN": "out"}),
    ("CoCoAMix", {"ENSEMBLE": "none"}),
    ("CoCoAMix", {"ENSEMBLE": "uniform"}),
    ("CoCoAMixFSCIL", {"ENSEMBLE": "uniform"}),
    ("CoCoAMixFSCIL", {"CENTRE": True}),
    ("L2PFSCIL", {"POOL": "visual"}),
    ("MaPLe", {"ENSEMBLE": "uniform"}),
]
NO_MATRIX = {"CoCoOp", "TuneEn", "FACTFSCIL", "L2PFSCIL"}


def trained(clip: Any, trainer: str, **settings: object) -> Any:
    """Return a module with moved parameters; for sessions, after all of them."""
    if not trainer.endswith("FSCIL"):
        return move(build(clip, trainer, **settings))
    done: list[Any] = []
    module: Any = None
    for session in range(len(SESSIONS)):
        module = move(build(clip, trainer, task=session_task(trainer, session, done), **settings))
        done.append(finished(module))
        module.task.learned[:] = done
    return module


def logits_of(classifier: Any, module: Any, count: int = 8) -> Tensor:
    inputs = inputs_of(module, count)
    with torch.no_grad():
        logits: Tensor = classifier.logits(classifier.encode(inputs) if module.reads == IMAGES else inputs)
    return logits


@pytest.mark.parametrize(("trainer", "settings"), FORMS)
def test_closed_form_and_label_spaces(tiny_clip: FrozenCLIP, trainer: str, settings: dict[str, Any]) -> None:
    """The matrices give the logits, the order of the classes is that of the columns, and images are independent."""
    module = trained(tiny_clip, trainer, **settings)
    own = list(SESSIONS[0]) + list(SESSIONS[1]) if trainer.endswith("FSCIL") else NAMES
    spaces = {"own": own, "turned": own[::-1], **({} if trainer == "FACTFSCIL" else {"all": [*own, "a new one"]})}
    for names in spaces.values():
        classifier = module.classifier(names)
        logits = logits_of(classifier, module)
        assert classifier.classnames == names
        assert logits.shape == (8, len(names))
        assert logits.std() > 0
        assert not logits.requires_grad
        if isinstance(classifier.matrices, str):
            assert trainer in NO_MATRIX
        else:
            features = inputs_of(module) if module.reads != IMAGES else classifier.encode(inputs_of(module)).detach()
            closed = classifier.matrices.logits(features)
            torch.testing.assert_close(closed, logits, atol=1e-4 * float(logits.abs().max()), rtol=0)
        torch.testing.assert_close(logits_of(classifier, module, 1), logits[:1], atol=2e-3, rtol=1e-4)
    turned, straight = (logits_of(module.classifier(spaces[name]), module) for name in ("turned", "own"))
    torch.testing.assert_close(turned.flip(1), straight, atol=2e-3, rtol=1e-4)
    default = module.classifier()
    assert default.classnames == ([n for one in SESSIONS for n in one] if trainer.endswith("FSCIL") else NAMES)


def context_of(module: Any) -> Tensor:
    return next(value for name, value in module.parts.named_parameters() if name.endswith(".ctx")).detach()


@pytest.mark.parametrize("trainer", ["CoOp", "KgCoOp", "ProGrad", "CoOpFSCIL"])
@pytest.mark.parametrize("space", SPACES)
def test_logits_of_a_context(tiny_clip: FrozenCLIP, trainer: str, space: str) -> None:
    module, names = trained(tiny_clip, trainer), SPACES[space]
    alone = logits_of(module.classifier(names), module)
    text = learned(tiny_clip, names, context_of(module))
    torch.testing.assert_close(alone, 100 * inputs_of(module) @ text.t(), atol=2e-3, rtol=0)
    if trainer != "CoOpFSCIL":
        module.settings.ENSEMBLE = "uniform"
        module = build(tiny_clip, trainer, ENSEMBLE="uniform")
        mean = (learned(tiny_clip, names, context_of(module)) + written(tiny_clip, names)) / 2
        mixed = logits_of(module.classifier(names), module)
        torch.testing.assert_close(mixed, 100 * inputs_of(module) @ mean.t(), atol=2e-3, rtol=0)


def test_class_specific_contexts_have_no_other_classes(tiny_clip: FrozenCLIP) -> None:
    for trainer, section in (("CoOp", "COOP"), ("DePT", "DEPT")):
        module = build(tiny_clip, trainer, CSC=True)
        assert logits_of(module.classifier(), module).shape == (8, 4)
        for names in (OTHERS, NAMES[::-1]):
            with pytest.raises(UserError, match=rf"TRAINER\.{section}\.CSC"):
                module.classifier(names)


def test_zero_shot_logits(tiny_clip: FrozenCLIP) -> None:
    for trainer, written_by in (("ZeroshotCLIP", [TEMPLATE]), ("ZeroshotCLIP2", [*templates.IMAGENET_7, TEMPLATE])):
        module = build(tiny_clip, trainer)
        mean = torch.stack([written(tiny_clip, OTHERS, one) for one in written_by]).mean(dim=0)
        wanted = 100 * inputs_of(module) @ F.normalize(mean, dim=-1).t()
        torch.testing.assert_close(logits_of(module.classifier(OTHERS), module), wanted, atol=2e-3, rtol=0)
        assert sorted(module.templates) == sorted(written_by)
    assert len(build(tiny_clip, "ZeroshotCLIP2", TEMPLATES=80).templates) == 81
    for module in (build(tiny_clip, name) for name in ("ZeroshotCLIP", "ZeroshotCLIP2")):
        with pytest.raises(UserError, match="eval-only"):
            module.loss(inputs_of(module), labels_of(module))


@pytest.mark.parametrize("trainer", ["KgCoOp", "ProGrad"])
def test_methods_have_templates_of_their_own(
    tiny_clip: FrozenCLIP, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    monkeypatch.setitem(templates.VARIANTS[trainer], "EuroSAT", "a drawing of {}.")
    module = build(tiny_clip, trainer)
    torch.testing.assert_close(module.hand_crafted_features(NAMES), written(tiny_clip, NAMES, "a drawing of {}."))
    assert build(tiny_clip, "CoOp", ENSEMBLE="uniform").templates == [TEMPLATE]
    assert build(tiny_clip, "CoOp").templates == []


def test_context_of_prograd_may_start_with_the_template(tiny_clip: FrozenCLIP) -> None:
    """Padded at the front with zeros to N_CTX."""
    module = build(tiny_clip, "ProGrad", CTX_INIT=True, N_CTX=8)
    words = build(tiny_clip, "CoOp", CTX_INIT="a centered satellite photo of").learner.ctx
    assert torch.equal(module.learner.ctx[8 - len(words) :], words)
    assert not module.learner.ctx[: 8 - len(words)].any()
    with pytest.raises(UserError, match=r"TRAINER\.COOP\.CTX_INIT"):
        build(tiny_clip, "ProGrad", CTX_INIT=True, TEMPLATE="{} texture.")


# ---------------------------------------------------------------------- CoCoA-Mix


def two_sides(module: Any, names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return the similarities of the template and of the context, the mean over the models."""
    clips, sides = module.clip.each(), []
    contexts = [value for name, value in module.parts.named_parameters() if name.endswith("ctx")]
    for clip, context, part in zip(clips, contexts, inputs_of(module).chunk(len(clips), dim=1), strict=True):
        texts = written(clip, names, "a photo of a {}."), learned(clip, names, context.detach())
        sides.append(torch.stack([F.normalize(part, dim=-1) @ text.t() for text in texts]))
    first, second = torch.stack(sides).mean(dim=0)
    return first, second


def mixed(s_0: Tensor, s_1: Tensor, pi: Tensor | float, scale: float) -> Tensor:
    return scale * ((1 - pi) * s_0 + pi * s_1)


@pytest.mark.parametrize("backbones", [1, 2])
@pytest.mark.parametrize("stage", ["one", "two"])
def test_logits_of_cocoamix(tiny_clip: FrozenCLIP, stage: str, backbones: int) -> None:
    """One kind of classes: s_0/tau_0 + s_1/tau_1 in one stage, pi in two; both kinds: pi of each class, CLIP's tau."""
    members = [tiny_clip, load_clip("tiny", "", precision="fp32")][:backbones]
    module = move(build(SeveralCLIPs(members), "CoCoAMix", STAGE=stage))
    scale, (a_in, a_out) = tiny_clip.logit_scale, (float(one.detach()) for one in module.weights.parameters())
    if stage == "one":
        inside, outside = (math.exp(a) / (scale + math.exp(a)) for a in (a_in, a_out))
    else:
        inside, outside = (1 / (1 + math.exp(-a)) for a in (a_in, a_out))
    for space, names in SPACES.items():
        s_0, s_1 = two_sides(module, names)
        classifier = module.classifier(names)
        pi = torch.tensor([inside if name in NAMES else outside for name in names])
        wanted = mixed(s_0, s_1, pi, scale)
        if space != "all" and stage == "one":
            wanted = scale * s_0 + math.exp(a_out if space == "other" else a_in) * s_1
        torch.testing.assert_close(logits_of(classifier, module), wanted, atol=2e-3, rtol=0)
        assert f"{pi.min():.4f} to {pi.max():.4f}" in " ".join(classifier.notes)
        assert classifier.facts == {}
    assert module.out_names is None  # an evaluation needs none


@pytest.mark.parametrize("stage", ["one", "two"])
def test_settings_of_the_mixture(tiny_clip: FrozenCLIP, stage: str) -> None:
    def found(names: Sequence[str] = SPACES["all"], **settings: object) -> tuple[Tensor, dict[str, Any]]:
        module = move(build(tiny_clip, "CoCoAMix", STAGE=stage, **settings))
        module.heldout.fitted = {"temperature": 0.02}
        classifier = module.classifier(names)
        return logits_of(classifier, module), classifier.facts

    module = move(build(tiny_clip, "CoCoAMix", STAGE=stage))
    s_0, s_1 = two_sides(module, SPACES["all"])
    one_weight = {side: float(getattr(module.weights, side).detach()) for side in ("inside", "outside")}
    pi_in, pi_out = (float(torch.tensor(a).exp()) for a in one_weight.values())
    first = 100.0 if stage == "one" else 1.0
    pi_in, pi_out = pi_in / (first + pi_in), pi_out / (first + pi_out)

    def alone(pi: float) -> Tensor:
        return mixed(s_0, s_1, pi, 100 / (1 - pi) if stage == "one" else 100)

    close = {"atol": 3e-3, "rtol": 0}
    torch.testing.assert_close(found(DOMAIN="in")[0], alone(pi_in), **close)
    torch.testing.assert_close(found(DOMAIN="out")[0], alone(pi_out), **close)
    torch.testing.assert_close(found(OUT_CLASSES="none")[0], alone(pi_in), **close)  # pi^in for every class
    torch.testing.assert_close(found(ENSEMBLE="uniform")[0], mixed(s_0, s_1, 0.5, 100), **close)
    torch.testing.assert_close(found(ENSEMBLE="none")[0], 100 * s_1, **close)
    pi = torch.tensor([pi_in] * len(NAMES) + [pi_out] * len(OTHERS))
    centred, facts = found(CENTRE=True)
    level = [side - side.mean(dim=1, keepdim=True) for side in (s_0, s_1)]
    torch.testing.assert_close(centred, mixed(*level, pi, 100), **close)
    assert facts == {"centred": True}
    for names in (NAMES, OTHERS):  # one weight for all classes: unchanged, bit for bit
        assert torch.equal(found(names, CENTRE=True)[0], found(names)[0])
        assert found(names, CENTRE=True)[1] == {}
    calibrated, facts = found(CALIBRATED=True, WEIGHT_FIT="heldout")
    torch.testing.assert_close(calibrated, found()[0] / (0.02 * 100), **close)
    assert facts == {"calibrated": True}


def test_untrained_weights_are_the_uniform_ensemble(tiny_clip: FrozenCLIP) -> None:
    for stage in ("one", "two"):
        module = build(tiny_clip, "CoCoAMix", STAGE=stage)
        s_0, s_1 = two_sides(module, SPACES["all"])
        logits = logits_of(module.classifier(SPACES["all"]), module)
        torch.testing.assert_close(logits, 50 * (s_0 + s_1), atol=2e-3, rtol=0)
        assert module.results()["weights"] == {"pi_in": 0.5, "pi_out": 0.5}


@pytest.mark.parametrize("ensemble", ["coa", "uniform", "none"])
def test_mixture_over_sessions(tiny_clip: FrozenCLIP, ensemble: str) -> None:
    """Every prompt on all classes seen so far: pi^in for its own session's, pi^out for the others."""
    module = trained(tiny_clip, "CoCoAMixFSCIL", ENSEMBLE=ensemble)
    features, names = inputs_of(module), [name for one in SESSIONS for name in one]
    for number, state in enumerate(module.task.learned):
        if ensemble == "coa":
            state["coa_weights"] = {"inside": torch.tensor([0.8 - number]), "outside": torch.tensor([-0.4 * number])}
    for session, count in enumerate((4, 6, 8)):
        seen = names[:count]
        sides = [features @ written(tiny_clip, seen, "a photo of a {}.").t()]
        states = module.task.learned[: session + 1]
        sides += [features @ learned(tiny_clip, seen, state["prompt_learner"]["ctx"]).t() for state in states]
        columns = []
        for label, name in enumerate(seen):
            own = next(number for number, one in enumerate(SESSIONS) if name in one)
            shares = [1.0] + [1.0 if ensemble == "uniform" else float(number == own) for number in range(session + 1)]
            if ensemble == "coa":
                sides_of = ["inside" if number == own else "outside" for number in range(session + 1)]
                pairs = zip(states, sides_of, strict=True)
                shares = [1.0, *(float(state["coa_weights"][side].exp()) for state, side in pairs)]
            shares[0] = 0.0 if ensemble == "none" else 1.0
            columns.append(sum(s * side[:, label] for s, side in zip(shares, sides, strict=True)) / sum(shares))
        wanted = 100 * torch.stack(columns, dim=1)
        after = module.after(session)
        assert after.classnames == seen
        torch.testing.assert_close(logits_of(after, module), wanted, atol=3e-3, rtol=0)
        mixed_up = [seen[-1].upper().replace(" ", "_"), seen[0]]
        torch.testing.assert_close(
            logits_of(module.after(session, mixed_up), module), wanted[:, [-1, 0]], atol=3e-3, rtol=0
        )


def test_sessions_are_centred_if_classes_have_different_weights(tiny_clip: FrozenCLIP) -> None:
    module = trained(tiny_clip, "CoCoAMixFSCIL", CENTRE=True)
    plain = trained(tiny_clip, "CoCoAMixFSCIL")
    assert module.after(0).facts == plain.after(2).facts == {}
    assert torch.equal(logits_of(module.after(0), module), logits_of(plain.after(0), plain))
    assert module.after(2).facts == {"centred": True}
    sides = [torch.cat([plain.block_features(prompt, block) for block in range(3)]) for prompt in range(4)]
    level = [side - side.mean(dim=0) for side in sides]
    wanted = torch.einsum("kcd,kc->cd", torch.stack(level), plain.mixture_weights(2))
    torch.testing.assert_close(
        logits_of(module.after(2), module), 100 * inputs_of(module) @ wanted.t(), atol=3e-3, rtol=0
    )
    tied = trained(tiny_clip, "CoCoAMixFSCIL", CENTRE=True, OUT_CLASSES="none")
    assert set(tied.task.learned[0]["coa_weights"]) == {"inside"}
    assert tied.after(2).facts == {}


# ---------------------------------------------------------------------- DePT, T_En, FACT


def test_head_of_dept_belongs_to_its_classes(tiny_clip: FrozenCLIP) -> None:
    """Rows by name for any of the trained classes; similarity alone if a class is new, or names are not known."""
    module = trained(tiny_clip, "DePT", WEIGHT=0.2)
    raw, head = inputs_of(module), module.head
    for names, rows in ((NAMES, [0, 1, 2, 3]), (["Highway or Road", NAMES[0]], [3, 0]), ([NAMES[0], "new"], None)):
        classifier = module.classifier(names)
        similarity = 100 * F.normalize(raw, dim=-1) @ learned(tiny_clip, names, context_of(module)).t()
        wanted = similarity
        if rows:
            scores = head.head(head.image.scale * raw + head.image.shift)[:, rows]
            wanted = 0.8 * similarity + 0.2 * scores
        torch.testing.assert_close(logits_of(classifier, module), wanted.detach(), atol=3e-3, rtol=0)
        assert ("alone" in classifier.notes[0]) == (rows is None)
    module.resize("channel_head", {"head.weight": torch.zeros(7, WIDTH)})  # of a code base that names no classes
    assert "7 classes with unknown names" in module.classifier().notes[0]


def test_classes_of_one_name_are_told_apart_by_synset(tiny_clip: FrozenCLIP) -> None:
    """CLIP calls two classes of ImageNet "missile"; ImageNet-R has only the first of them."""
    names, synsets = ["cat", "missile", "missile", "sports car"], ["n1", "n2", "n3", "n4"]
    module = build(tiny_clip, "DePT", task=Task(tuple(names), "ImageNet", synsets=tuple(synsets)))
    move(module)
    for chosen, rows in ((["n1", "n2"], [0, 1]), (["n1", "n3"], [0, 2])):
        assert module._rows(["cat", "missile"], chosen) == (rows, "")
    module.adopt({})  # a checkpoint that does not record them
    assert "'missile' could be more than one" in module.classifier(["cat", "missile"], ["n1", "n2"]).notes[0]


def test_tune_en_without_weights_is_the_mean_of_its_models(tiny_clip: FrozenCLIP) -> None:
    other = load_clip("tiny", "", precision="fp32")
    module = build(SeveralCLIPs([tiny_clip, other]), "TuneEn")
    for parameter in module.generator.parameters():
        torch.nn.init.zeros_(parameter)
    inputs = inputs_of(module)
    pairs = zip((tiny_clip, other), inputs.chunk(2, dim=1), strict=True)
    shares = [
        (clip.logit_scale * F.normalize(x, dim=-1) @ written(clip, OTHERS).t()).softmax(dim=1) for clip, x in pairs
    ]
    found = logits_of(module.classifier(OTHERS), module).exp()
    torch.testing.assert_close(found, torch.stack(shares).mean(dim=0), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(8))
    for name in ("ImageNet", "cocoamix.ImageNetV2", "ImageNetSketch", "ImageNetA", "ImageNetR", "Caltech101"):
        task = Task(tuple(NAMES), name)
        seven = list(build(tiny_clip, "TuneEn", task=task).templates) == list(templates.IMAGENET_7)
        assert seven == ("ImageNet" in name)


def test_tune_en_on_trained_prompts(tiny_clip: FrozenCLIP, tmp_path: Any) -> None:
    """A context for one model, and CoCoOp's, which depends on the image, for the other."""
    coop, cocoop = trained(tiny_clip, "CoOp"), trained(tiny_clip, "CoCoOp")
    prompts = tuple(
        TrainedPrompt(finished(one)["prompt_learner"], "end", one is cocoop, tmp_path) for one in (coop, cocoop)
    )
    module = build(tiny_clip, "TuneEn", task=Task(tuple(NAMES), "EuroSAT", prompts=prompts))
    for parameter in module.generator.parameters():
        torch.nn.init.zeros_(parameter)
    raw = inputs_of(module)
    parts = [F.normalize(part, dim=-1) for part in raw.chunk(2, dim=1)]
    with torch.no_grad():
        shares = [
            one.classifier(OTHERS).logits(part).softmax(dim=1) for one, part in zip((coop, cocoop), parts, strict=True)
        ]
        found = module.classifier(OTHERS).logits(raw).exp()
    torch.testing.assert_close(found, torch.stack(shares).mean(dim=0), atol=1e-4, rtol=1e-3)
    assert module.templates == []
    known, kinds = module.identity(), module.protocol()["prompts"]
    assert kinds[0] == "3 learned vectors"
    assert kinds[1].startswith("3 learned vectors, shifted")
    same = build(tiny_clip, "TuneEn", task=Task(tuple(NAMES), "EuroSAT", prompts=prompts)).identity()
    prompts[0].state["ctx"].add_(0.01)
    other = build(tiny_clip, "TuneEn", task=Task(tuple(NAMES), "EuroSAT", prompts=prompts)).identity()
    assert same == known != other


def test_fact_mixes_after_session_0_and_knows_only_its_classes(tiny_clip: FrozenCLIP) -> None:
    module = trained(tiny_clip, "FACTFSCIL", ETA=0.3)
    features, states = inputs_of(module), [state["prototypes"] for state in module.task.learned]
    first = states[0]
    hidden = F.linear(features, first["network.inner.weight"], first["network.inner.bias"]).clamp(min=0)
    embedded = features + F.linear(hidden, first["network.outer.weight"], first["network.outer.bias"])
    rows = torch.cat([state["prototypes"] for state in states])

    def near(x: Tensor, y: Tensor) -> Tensor:
        return F.cosine_similarity(x[:, None], y[None], dim=-1)

    torch.testing.assert_close(logits_of(module.after(0), module), 16 * near(embedded, rows[:4]), atol=1e-3, rtol=0)
    way = (near(embedded, first["virtual"]) @ near(first["virtual"], rows)).softmax(dim=1)
    wanted = 0.3 * way + 0.7 * (16 * near(embedded, rows)).softmax(dim=1)
    torch.testing.assert_close(logits_of(module.after(2), module).exp(), wanted, atol=1e-4, rtol=1e-3)
    with pytest.raises(UserError, match="zebra"):
        module.classifier(["zebra"])
    states[1]["prototypes"] = torch.zeros(3, WIDTH)
    with pytest.raises(UserError, match="Session 1"):
        module.after(2)


def test_prototypes_of_fact_are_class_means(tiny_clip: FrozenCLIP) -> None:
    """Of the embeddings of all images, without augmentation, after session 0 by its network, too."""
    module = trained(tiny_clip, "FACTFSCIL")
    first = module.task.learned[0]["prototypes"]
    for session, classes in ((0, 4), (1, 2)):
        task = session_task("FACTFSCIL", session, module.task.learned)
        own = build(tiny_clip, "FACTFSCIL", task=task)
        if not session:
            own.parts["prototypes"].load_state_dict(first, strict=False)
        features, labels = inputs_of(own, 12), torch.arange(12) % classes
        hidden = F.linear(features, first["network.inner.weight"], first["network.inner.bias"]).clamp(min=0)
        embedded = features + F.linear(hidden, first["network.outer.weight"], first["network.outer.bias"])
        own.end(None, lambda features=features, labels=labels: (features, labels, torch.arange(12)))
        wanted = torch.stack([embedded[labels == label].mean(dim=0) for label in range(classes)])
        torch.testing.assert_close(own.learned.prototypes.detach(), wanted, atol=1e-5, rtol=1e-4)
        with pytest.raises(UserError, match=repr(SESSIONS[session][0])):
            own.end(None, lambda features=features: (features, torch.ones(12, dtype=torch.long), torch.arange(12)))
