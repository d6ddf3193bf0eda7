"""Losses against closed forms: gradients by autograd, limits, and each other."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from cocoamix.coa import losses
from cocoamix.errors import UserError


def example(seed: int, rows: int = 5, classes: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    similarities = torch.rand(rows, classes, generator=generator, dtype=torch.float64) * 0.3
    return similarities, torch.randint(classes, (rows,), generator=generator)


@given(seed=st.integers(0, 10**6), w=st.floats(0, 20), tau=st.floats(0.01, 0.5))
@settings(max_examples=40, deadline=None)
def test_gradient_of_ce_and_coa(seed: int, w: float, tau: float) -> None:
    """d/ds(y) = -(1 - p(y))(1 + w p(y))/tau and d/ds(c) = p(c)(1 + w p(y))/tau."""
    s, y = example(seed)
    s = s.float().requires_grad_()
    total, _ = losses.make_loss("ce+coa", weight=w)(s / tau, y)
    (total * len(y)).backward()  # the losses are means
    p = (s.detach() / tau).softmax(dim=1)
    right = p.gather(1, y[:, None])
    wanted = p * (1 + w * right) / tau
    wanted.scatter_(1, y[:, None], -(1 - right) * (1 + w * right) / tau)
    assert s.grad is not None
    torch.testing.assert_close(s.grad, wanted, atol=2e-4 * (1 + w) / tau, rtol=1e-4)


def test_losses_match_their_formulas() -> None:
    s, y = example(1)
    logits = s.float() * 20
    p = logits.softmax(dim=1)
    right = p[torch.arange(len(y)), y]
    one_hot = F.one_hot(y, logits.shape[1])
    torch.testing.assert_close(losses.cross_entropy(logits, y), F.cross_entropy(logits, y))
    torch.testing.assert_close(losses.coa(logits, y), (1 - right).mean())
    torch.testing.assert_close(losses.focal(logits, y, 2.0), (-((1 - right) ** 2) * right.log()).mean())
    torch.testing.assert_close(losses.gce(logits, y, 0.7), ((1 - right**0.7) / 0.7).mean())
    torch.testing.assert_close(losses.mae(logits, y), (one_hot - p).abs().mean())


def test_losses_coincide_at_their_limits() -> None:
    s, y = example(2)
    logits = s.float() * 20
    ce = losses.cross_entropy(logits, y)
    torch.testing.assert_close(losses.gce(logits, y, 1e-6), ce, rtol=1e-4, atol=0)
    torch.testing.assert_close(losses.gce(logits, y, 1.0), losses.coa(logits, y))
    torch.testing.assert_close(losses.focal(logits, y, 0.0), ce)


def test_total_is_the_weighted_sum_of_the_terms() -> None:
    s, y = example(3)
    logits = s.float() * 20
    total, terms = losses.make_loss("ce+mae", weight=3.0)(logits, y)
    assert list(terms) == ["ce", "mae"]
    torch.testing.assert_close(total, terms["ce"] + 3 * terms["mae"])
    for name in losses.LOSSES:
        assert torch.isfinite(losses.make_loss(name)(logits, y)[0])
    with pytest.raises(UserError, match=r"^LOSS is 'hinge'"):
        losses.make_loss("hinge")


def test_the_papers_settings_are_the_defaults() -> None:
    s, y = example(4)
    logits = s.float() * 20
    wanted = losses.cross_entropy(logits, y) + 5 * losses.coa(logits, y)
    torch.testing.assert_close(losses.make_loss("ce+coa")(logits, y)[0], wanted)
    torch.testing.assert_close(losses.make_loss("focal")(logits, y)[0], losses.focal(logits, y, 2.0))
    torch.testing.assert_close(losses.make_loss("gce")(logits, y)[0], losses.gce(logits, y, 0.7))


@pytest.mark.parametrize("name", losses.LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_finite_where_half_precision_is_not(name: str, dtype: torch.dtype) -> None:
    """A confident correct and a confident wrong prediction, with probabilities 1 and 0 in any precision."""
    logits = torch.tensor([[100.0, 0.0], [0.0, 100.0]], dtype=dtype, requires_grad=True)
    total, _ = losses.make_loss(name, gamma=0.5)(logits, torch.tensor([0, 0]))
    total.backward()
    assert total.dtype == torch.float32
    assert torch.isfinite(total)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
