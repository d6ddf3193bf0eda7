"""ProGrad: the projection, its limits, the initialisation of its context."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from cocoamix.clip import FrozenCLIP
from cocoamix.prompts.context import PromptLearner
from tests.conftest import CLASSES, Runner
from tests.trainers.test_coop import BASE, context
from tests.trainers.test_kgcoop import build

PG = {"trainer": "ProGrad"}
TEMPLATE = ["TRAINER.COOP.CTX_INIT", "a centered satellite photo of"]
WORDS = ["TRAINER.COOP.CTX_INIT", "True", "TRAINER.COOP.N_CTX", "8"]


def project(task: Tensor, general: Tensor, strength: float) -> Tensor:
    from cocoamix.trainers.prograd import project

    return project(task, general, strength)


def test_zero_strength_matches_coop(run: Runner) -> None:
    """Bit for bit; and with strength it differs: from the template's words, fitting the images leads away from it."""
    coop = run(*BASE, *TEMPLATE, name="coop")
    zero = run(*BASE, *TEMPLATE, "LOSS.LAMBDA", "0.0", name="zero", **PG)
    whole = run(*BASE, *TEMPLATE, name="whole", **PG)
    assert torch.equal(context(coop.folder), context(zero.folder))
    assert coop.results["metrics"] == zero.results["metrics"]
    assert not torch.equal(context(coop.folder), context(whole.folder)), "no step was in conflict"


class TestProjection:
    def test_agreeing_gradients_are_unchanged(self) -> None:
        task, general = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])
        assert torch.equal(project(task, general, 1.0), task)

    @pytest.mark.parametrize("strength", [1.0, 0.8, 0.0])
    def test_conflicting_part_of_a_gradient_is_removed(self, strength: float) -> None:
        generator = torch.Generator().manual_seed(0)
        task, general = torch.randn(2, 4, 8, generator=generator)
        general = general - task
        assert (task * general).sum() < 0
        done = project(task, general, strength)
        # Along `general`, 1 - strength of the conflict remains; orthogonal to it nothing changes.
        assert (done * general).sum().item() == pytest.approx((1 - strength) * (task * general).sum().item(), abs=1e-5)
        across = task - (task * general).sum() / (general * general).sum() * general
        assert (done * across).sum().item() == pytest.approx((task * across).sum().item(), rel=1e-5)

    def test_zero_gradients_are_allowed(self) -> None:
        task = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
        assert torch.equal(project(task, torch.zeros(3, 4), 1.0), task)
        assert torch.equal(project(torch.zeros(3, 4), task, 1.0), torch.zeros(3, 4))
        assert torch.equal(project(torch.zeros(3, 4), torch.zeros(3, 4), 1.0), torch.zeros(3, 4))

    def test_tiny_gradients_are_projected(self) -> None:
        """Its squares are zero in fp32, its direction is not."""
        task = torch.tensor([1.0, 1.0])
        torch.testing.assert_close(project(task, torch.tensor([-1e-30, 0.0]), 1.0), torch.tensor([0.0, 1.0]))

    @pytest.mark.parametrize("bad", [float("inf"), float("-inf"), float("nan")])
    def test_overflow_is_passed_through(self, bad: float) -> None:
        """So that a scaler sees it, skips the step and lowers its factor."""
        task, general = torch.tensor([1.0, 2.0]), torch.tensor([bad, 1.0])
        assert not torch.isfinite(project(task, general, 1.0)).all()
        assert not torch.isfinite(project(general, task, 1.0)).all()


def test_step_matches_manual_calculation(tmp_path: Path, data_root: Path, tiny_config: Path) -> None:
    """The gradient of a conflicting step, by two backward passes of losses written out."""
    trainer = build(tmp_path, data_root, "ProGrad", *BASE, *TEMPLATE, "LOSS.LAMBDA", "0.8", "LOSS.T", "2.0")
    generator = torch.Generator().manual_seed(3)
    features = torch.nn.functional.normalize(torch.randn(8, 128, generator=generator), dim=-1)
    labels = torch.arange(8) % 5
    written = trainer.clip.encode_texts([f"a centered satellite photo of {name}." for name in CLASSES[:5]])
    ctx = trainer.prompt_learner.ctx
    # A step away from the template, in a direction where the two losses conflict.
    fit = torch.nn.functional.cross_entropy(100 * features @ trainer.text_features().t(), labels)
    ctx.data -= 0.002 * torch.autograd.grad(fit, ctx)[0]
    logits = 100 * features @ trainer.text_features().t()
    fit = -torch.log_softmax(logits, dim=1)[range(8), labels].mean()
    teacher = torch.softmax(100 * features @ written.t() / 2, dim=1)
    apart = -4 * (teacher * torch.log_softmax(logits / 2, dim=1)).sum(dim=1).mean()
    task = torch.autograd.grad(fit, ctx, retain_graph=True)[0]
    general = torch.autograd.grad(apart, ctx)[0]
    assert (task * general).sum() < 0
    unit = general / general.norm()
    terms, _ = trainer.compute_loss(features, labels)
    assert terms["loss"].item() == pytest.approx(fit.item(), rel=1e-5)
    assert terms["kl"].item() == pytest.approx(apart.item(), rel=1e-5)
    trainer.backward(terms)
    torch.testing.assert_close(ctx.grad, task - 0.8 * (task * unit).sum() * unit, atol=1e-5, rtol=1e-4)


def test_context_has_zeros_before_its_words(run: Runner, tiny_clip: FrozenCLIP) -> None:
    done = run(*BASE, *WORDS, "OPTIM.MAX_EPOCH", "1", **PG)
    assert 'Initial context: "X X X a centered satellite photo of"' in done.log
    learner = PromptLearner(tiny_clip, CLASSES, ctx_init="a centered satellite photo of", pad_to=8)
    plain = PromptLearner(tiny_clip, CLASSES, ctx_init="a centered satellite photo of")
    assert torch.equal(learner.ctx[:3], torch.zeros(3, 128))
    assert torch.equal(learner.ctx[3:], plain.ctx)
    assert torch.equal(learner.own, plain.own), "the class names are the same"
    given = run(*BASE, "TRAINER.COOP.CTX_INIT", "a drawing of", "OPTIM.MAX_EPOCH", "1", name="given", **PG)
    assert 'Initial context: "X a drawing of"' in given.log


def test_training_and_evaluation_on_all_subsets(run: Runner) -> None:
    trained = run(*BASE, *WORDS, "OPTIM.MAX_EPOCH", "2", **PG)
    assert trained.status == 0, trained.output[-500:]
    assert trained.results["trained_parameters"] == 8 * 128
    evaluate = ["--eval-only", "--model-dir", str(trained.folder), *WORDS]
    for name, classes in (("base", 5), ("new", 5), ("all", 10)):
        done = run(*evaluate[:3], *BASE[:3], name, *WORDS, name=name, **PG)
        assert (done.status, done.results["classes"]) == (0, classes), done.output[-300:]
        if name == "base":
            assert done.results["metrics"] == trained.results["metrics"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("LOSS.LAMBDA", "-0.5"), "LOSS.LAMBDA"),
        (("LOSS.NAME", "kd"), "LOSS.NAME"),
        (("LOSS.GM", "True"), "LOSS.GM"),
        (("TRAINER.COOP.CTX_INIT", "True", "TRAINER.COOP.TEMPLATE", "{} texture."), "no words before"),
    ],
)
def test_invalid_values_are_refused(run: Runner, settings: tuple[str, ...], message: str) -> None:
    done = run(*BASE, *settings, **PG)
    assert done.status == 2
    assert message in done.output
