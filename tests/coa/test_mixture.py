"""The mixture and its weights, against the paper's theorem and lemma and the closed forms of their gradients."""

from __future__ import annotations

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
@settings(max_examples=40, deadline=None)
def test_mixture_error_is_bounded(seed: int, prompts: int) -> None:
    """Theorem 3.2: with weights that do not depend on the class, the error is at most the weighted errors."""
    generator = torch.Generator().manual_seed(seed)
    s, labels = similarities(seed, prompts), torch.randint(8, (6,), generator=generator)
    pi = torch.rand(prompts, generator=generator).softmax(dim=0)
    mixed = error(SCALE * mix(s, pi[:, None].expand(-1, 8)), labels)
    assert (mixed <= sum(pi[i] * error(SCALE * s[i], labels) for i in range(prompts)) + 1e-4).all()


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
    for label, number in enumerate(owner.tolist()):  # pi^in for a prompt's own classes, pi^out elsewhere
        for prompt in range(1, prompts + 1):
            alpha = (inside if prompt == number else outside)[prompt - 1]
            assert float(weights[prompt, label] / weights[0, label]) == pytest.approx(float(alpha.exp()), rel=1e-4)


@given(seed=st.integers(0, 10**6), which=st.integers(0, 3), offset=st.floats(-1.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_a_constant_added_to_a_prompt_changes_nothing_once_centred(seed: int, which: int, offset: float) -> None:
    """A different constant for each image; without centring it shifts probability between own and other classes."""
    pi = class_weights(torch.full((3,), 2.0), torch.full((3,), -2.0), torch.tensor([1, 1, 1, 0, 0, 3, 3, 0]))
    s = similarities(seed, 4)
    moved = s.clone()
    moved[which] += offset * (0.5 + torch.rand(6, generator=torch.Generator().manual_seed(seed)))[:, None]
    before, after = (SCALE * mix(centre(one), pi) for one in (s, moved))
    torch.testing.assert_close(before.softmax(dim=1), after.softmax(dim=1), rtol=1e-3, atol=1e-4)
    if which in (1, 3) and abs(offset) > 0.05:  # which own classes
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
