"""The mixture and its weights, against the paper's theorem and lemma and the closed forms of their gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from cocoamix.coa.mixture import all_columns_equal, centre, class_weights, find_owners, mix, mix_text
from cocoamix.coa.weights import CoAWeights, entropy
from cocoamix.errors import UserError

SCALE = 100.0


def similarities(seed: int, prompts: int, rows: int = 6, classes: int = 8) -> torch.Tensor:
    return torch.rand(prompts, rows, classes, generator=torch.Generator().manual_seed(seed)) * 0.2


def error(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, labels, reduction="none")


@given(seed=st.integers(0, 10**6), prompts=st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_mixture_error_is_bounded(seed: int, prompts: int) -> None:
    """Theorem 3.2: with weights that do not depend on the class, the error is at most the weighted errors."""
    generator = torch.Generator().manual_seed(seed)
    s = similarities(seed, prompts)
    pi = torch.rand(prompts, generator=generator).softmax(dim=0)
    labels = torch.randint(8, (6,), generator=generator)
    mixed = error(SCALE * mix(s, pi[:, None].expand(-1, 8)), labels)
    bound = sum(pi[i] * error(SCALE * s[i], labels) for i in range(prompts))
    assert (mixed <= bound + 1e-4).all()


@given(seed=st.integers(0, 10**6), prompts=st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_error_decomposes_over_sub_domains(seed: int, prompts: int) -> None:
    """Lemma 3.3: the error is the mean of the sub-domains' errors by their share, and so is the bound, with each
    sub-domain's own weights pi_i^in for its prompt and pi_j^out for the others."""
    generator = torch.Generator().manual_seed(seed)
    inside, outside = torch.randn(2, prompts - 1, generator=generator)
    domain = torch.randint(prompts, (40,), generator=generator)
    labels = torch.randint(8, (40,), generator=generator)
    s = similarities(seed, prompts, rows=40)
    total, bound = torch.zeros(()), torch.zeros(())
    everything = torch.empty(40)
    for number in range(prompts):
        rows = domain == number
        if not rows.any():
            continue
        weights = class_weights(inside, outside, torch.full((8,), number))
        for other in range(1, prompts):  # pi^in applies to a prompt's own classes, pi^out elsewhere
            expected = inside if other == number else outside
            assert weights[other, 0] / weights[0, 0] == pytest.approx(float(expected[other - 1].exp()), rel=1e-4)
        errors = error(SCALE * mix(s[:, rows], weights), labels[rows])
        everything[rows] = errors
        share = rows.float().mean()
        total = total + share * errors.mean()
        bound = bound + share * sum(
            weights[i, 0] * error(SCALE * s[i, rows], labels[rows]).mean() for i in range(prompts)
        )
    torch.testing.assert_close(total, everything.mean(), rtol=1e-4, atol=1e-5)
    assert total <= bound + 1e-4


@given(seed=st.integers(0, 10**6), prompts=st.integers(1, 9), classes=st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_weights_of_every_class_sum_to_one(seed: int, prompts: int, classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    inside, outside = torch.randn(2, prompts, generator=generator) * 3
    owner = torch.randint(prompts + 1, (classes,), generator=generator)
    weights = class_weights(inside, outside, owner)
    assert weights.shape == (prompts + 1, classes)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(dim=0), torch.ones(classes))


@given(
    seed=st.integers(0, 10**6),
    prompts=st.integers(2, 5),
    which=st.integers(0, 4),
    offset=st.floats(0.05, 1.0),
    sign=st.sampled_from((-1, 1)),
)
@settings(max_examples=60, deadline=None)
def test_a_constant_added_to_a_prompt_changes_nothing_once_centred(
    seed: int, prompts: int, which: int, offset: float, sign: int
) -> None:
    """A different constant for each image; without centring it shifts probability between own and other classes."""
    generator = torch.Generator().manual_seed(seed)
    s = similarities(seed, prompts)
    owner = torch.tensor([1, 1, 1, 0, 0, prompts - 1, prompts - 1, 0])
    pi = class_weights(torch.full((prompts - 1,), 2.0), torch.full((prompts - 1,), -2.0), owner)
    moved = s.clone()
    constants = sign * offset * (0.5 + torch.rand(6, generator=generator))
    moved[which % prompts] += constants[:, None]
    before, after = (SCALE * mix(centre(one), pi) for one in (s, moved))
    torch.testing.assert_close(before.softmax(dim=1), after.softmax(dim=1), rtol=1e-3, atol=1e-4)
    sure = before.topk(2, dim=1).values
    decided = sure[:, 0] - sure[:, 1] > 1e-3
    assert torch.equal(before.argmax(dim=1)[decided], after.argmax(dim=1)[decided])
    if which % prompts in (1, prompts - 1):  # which own classes
        before, after = ((SCALE * mix(one, pi)).log_softmax(dim=1) for one in (s, moved))
        assert (before - after).abs().max() > 0.5


def test_centred_text_features_are_centred_similarities() -> None:
    generator = torch.Generator().manual_seed(3)
    text, images = torch.randn(3, 8, 16, generator=generator), torch.randn(6, 16, generator=generator)
    owner = torch.tensor([1, 1, 1, 2, 2, 2, 2, 2])
    pi = class_weights(torch.tensor([1.0, 0.5]), torch.tensor([-1.0, 0.2]), owner)
    by_similarities = mix(centre(torch.einsum("bd,kcd->kbc", images, text)), pi)
    torch.testing.assert_close(images @ mix_text(text, pi, centred=True).t(), by_similarities)
    assert not torch.allclose(images @ mix_text(text, pi).t(), by_similarities, atol=0.1)
    assert not all_columns_equal(pi)
    assert all_columns_equal(pi[:, 3:])
    assert all_columns_equal(torch.full((3, 8), 1 / 3))


def test_owners_are_found_by_name() -> None:
    owners = find_owners(["red_star", "Cat", "dog", "tree"], [["red star", "dog"], ["cat"]])
    assert owners.tolist() == [1, 2, 1, 0]


def test_the_latest_of_several_owners_wins() -> None:
    assert find_owners(["dog", "cat"], [["dog", "cat"], ["Dog"], ["tree"]]).tolist() == [2, 1]


def test_one_stage_is_the_mixture_with_its_own_temperature() -> None:
    """s_0/tau_0 + s_1/tau_1 is pi_1 = tau_0/(tau_0 + tau_1) and tau = tau_0 tau_1/(tau_0 + tau_1)."""
    weights = CoAWeights(SCALE, stage="one")
    with torch.no_grad():
        weights.inside.fill_(math.log(1 / 0.03))
        weights.outside.fill_(math.log(1 / 0.004))
    s = similarities(1, 2)
    for owner, tau in ((1, 0.03), (0, 0.004)):
        owners = torch.full((8,), owner)
        pi = weights.pi(owners)[1, 0].detach()
        assert float(pi) == pytest.approx(0.01 / (0.01 + tau), rel=1e-5)
        wanted = s[0] / 0.01 + s[1] / tau
        torch.testing.assert_close(weights.logits(s, owners, mixed=False), wanted, rtol=1e-4, atol=1e-4)
        common = 0.01 * tau / (0.01 + tau)
        by_pi = mix(s, torch.stack([1 - pi, pi])[:, None].expand(-1, 8)) / common
        torch.testing.assert_close(by_pi, wanted, rtol=1e-4, atol=1e-4)
    owners = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0])
    torch.testing.assert_close(weights.logits(s, owners, mixed=True), SCALE * mix(s, weights.pi(owners)))


@pytest.mark.parametrize("stage", ["one", "two"])
def test_equal_weights_are_the_uniform_ensemble(stage: str) -> None:
    weights = CoAWeights(SCALE, stage=stage)
    s = similarities(2, 2)
    owners = torch.tensor([1, 0] * 4)
    assert torch.equal(weights.pi(owners), torch.full((2, 8), 0.5))
    torch.testing.assert_close(weights.logits(s, owners, mixed=True), SCALE * s.mean(dim=0))


@pytest.mark.parametrize("stage", ["one", "two"])
def test_gradient_of_the_in_loss(stage: str) -> None:
    """One stage: d/da_1 = (E_p[s_1] - s_1(y))/tau_1. Two: d/da_i = pi_i (E_p[d] - d(y))/tau with d = s_i - s_mix."""
    prompts = 1 if stage == "one" else 2
    weights = CoAWeights(SCALE, prompts, stage)
    with torch.no_grad():
        weights.inside.add_(torch.tensor([0.7, -0.4])[:prompts])
        weights.outside.add_(torch.tensor([-0.9, 0.5])[:prompts])
    s, labels = similarities(3, prompts + 1), torch.tensor([0, 1, 2, 3, 4, 5])
    F.cross_entropy(weights.in_logits(s), labels, reduction="sum").backward()
    s = s.double()
    if stage == "one":
        scales, parts = SCALE * math.exp(0.7), s[1]
        logits = SCALE * s[0] + scales * s[1]
    else:  # the last prompt's own classes, which the first one is not trained on
        raw = torch.tensor([0.0, -0.9, -0.4], dtype=torch.float64).exp()
        pi = raw / raw.sum()
        mixed = (pi[:, None, None] * s).sum(dim=0)
        logits, scales, parts = SCALE * mixed, SCALE * float(pi[2]), s[2] - mixed
    p = logits.softmax(dim=1)
    right = parts[range(6), labels]
    wanted = scales * ((p * parts).sum(dim=1) - right).sum()
    assert weights.inside.grad is not None
    assert float(weights.inside.grad[-1]) == pytest.approx(float(wanted), rel=1e-4)
    assert stage == "one" or float(weights.inside.grad[0]) == 0


@pytest.mark.parametrize("stage", ["one", "two"])
def test_entropy_loss_is_zero_within_the_margin(stage: str) -> None:
    """Exactly zero if the margin holds for every image; otherwise its gradient lowers the weight of the prompt."""
    weights = CoAWeights(SCALE, stage=stage)
    s = similarities(4, 2)
    loss = weights.out_loss(s, margin=0.2)
    loss.backward()
    assert loss > 0
    assert weights.inside.grad is None or not weights.inside.grad.any()
    assert weights.outside.grad is not None
    assert weights.outside.grad.item() > 0  # descent lowers it
    with torch.no_grad():
        weights.outside.sub_(8)
    assert weights.out_loss(s, margin=0.2).item() == 0
    scale = SCALE if stage == "one" else SCALE * float(weights.pi(torch.zeros(1, dtype=torch.long))[0, 0].detach())
    room = 1 - entropy(s[0] * scale).max().item()  # the learned prompt is now maximally uncertain
    assert weights.out_loss(s, margin=room - 0.01).item() == 0
    assert weights.out_loss(s, margin=room + 0.01).item() > 0


@pytest.mark.parametrize("stage", ["one", "two"])
def test_entropy_loss_matches_manual_calculation(stage: str) -> None:
    """For the last of two learned prompts; in two stages the other one has a share, too."""
    weights = CoAWeights(20.0, prompts=2, stage=stage)
    with torch.no_grad():
        weights.inside.fill_(0.9)
        weights.outside.copy_(torch.tensor([0.5, -1.3]) + (math.log(20.0) if stage == "one" else 0.0))
    own, total = math.exp(-1.3), 1 + math.exp(0.5) + math.exp(-1.3)
    first, last = (20.0, 20.0 * own) if stage == "one" else (20.0 / total, 20.0 * own / total)

    def uncertainty(row: list[float], scale: float) -> float:
        powers = [math.exp(scale * value) for value in row]
        return -sum(p / sum(powers) * math.log(p / sum(powers)) for p in powers) / math.log(len(row))

    s = similarities(7, 2)
    pairs = zip(*s.tolist(), strict=True)
    lost = [max(0.0, uncertainty(one, first) - uncertainty(two, last) + 0.4) for one, two in pairs]
    assert min(lost) > 0
    assert weights.out_loss(s, 0.4).item() == pytest.approx(sum(lost) / len(lost), abs=1e-5)
    assert weights.out_loss(s.half(), 0.4).item() == weights.out_loss(s.half().float(), 0.4).item()


@pytest.mark.parametrize("stage", ["one", "two"])
def test_tensors_are_created_on_the_device_of_the_input(stage: str) -> None:
    """On torch's `meta`, which every machine has; a tensor created on the CPU does not combine with it."""
    weights, s = CoAWeights(SCALE, stage=stage).to("meta"), similarities(9, 2).to("meta")
    owners = torch.zeros(8, dtype=torch.long, device="meta")
    found = [weights.pi(owners), weights.in_logits(s), weights.out_loss(s, 0.2)]
    assert {one.device.type for one in found} == {"meta"}


def test_a_label_space_may_have_one_class() -> None:
    weights = CoAWeights(SCALE)
    assert weights.logits(similarities(9, 2, classes=1), torch.tensor([1]), mixed=False).shape == (6, 1)


def test_the_mixture_is_in_full_precision() -> None:
    s, pi = similarities(8, 2).half(), torch.tensor([[0.3] * 8, [0.7] * 8], dtype=torch.float64)
    assert torch.equal(mix(s, pi), mix(s.float(), pi.float()))
    assert mix(s, pi.half()).dtype == torch.float32


def test_entropy_is_between_zero_and_one() -> None:
    assert entropy(torch.zeros(1, 9)).item() == pytest.approx(1)
    assert entropy(torch.zeros(1, 2)).item() == pytest.approx(1)
    assert entropy(torch.tensor([[1000.0, 0, 0]])).item() == pytest.approx(0)
    assert torch.isfinite(entropy(torch.zeros(2, 1))).all()


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(UserError, match=r"^STAGE is 'three'"):
        CoAWeights(SCALE, stage="three")


def test_weight_losses_do_not_reach_the_similarities() -> None:
    weights = CoAWeights(SCALE)
    s = similarities(5, 2).requires_grad_()
    (weights.in_logits(s).sum() + weights.out_loss(s, 0.2)).backward()
    assert s.grad is None
    assert weights.inside.grad is not None
