"""The mixture of an evaluation against a manual calculation."""

from __future__ import annotations

import math

import pytest
import torch

from cocoamix.coa.head import MixtureHead
from cocoamix.coa.weights import CoAWeights

GENERAL = torch.tensor([[0.30, 0.20, 0.10]])
SPECIAL = torch.tensor([[0.10, 0.25, 0.40]])


def two_stages(inside: float, outside: float) -> CoAWeights:
    weights = CoAWeights(100.0, stage="two")
    weights.inside.data.fill_(math.log(inside / (1 - inside)))
    weights.outside.data.fill_(math.log(outside / (1 - outside)))
    return weights


def test_each_class_uses_its_own_weight() -> None:
    head = MixtureHead(two_stages(0.8, 0.3), torch.tensor([1, 1, 0]), centre=False)
    pi = torch.tensor([0.8, 0.8, 0.3])
    torch.testing.assert_close(head.logits(GENERAL, SPECIAL), 100 * ((1 - pi) * GENERAL + pi * SPECIAL))
    assert head.mixed
    assert not head.centred


def test_centring_subtracts_the_mean_of_each_prompt() -> None:
    head = MixtureHead(two_stages(0.8, 0.3), torch.tensor([1, 1, 0]), centre=True)
    assert head.centred
    shifted = head.logits(GENERAL + 0.5, SPECIAL - 0.25)
    torch.testing.assert_close(shifted, head.logits(GENERAL, SPECIAL), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("owner", [[1, 1, 1], [0, 0, 0]])
def test_one_weight_for_all_is_not_centred(owner: list[int]) -> None:
    assert not MixtureHead(two_stages(0.8, 0.3), torch.tensor(owner), centre=True).centred


def test_temperature_replaces_the_scale_without_changing_predictions() -> None:
    owner = torch.tensor([1, 1, 1])
    plain = MixtureHead(two_stages(0.6, 0.3), owner, centre=False).logits(GENERAL, SPECIAL)
    cooled = MixtureHead(two_stages(0.6, 0.3), owner, centre=False, temperature=0.02).logits(GENERAL, SPECIAL)
    torch.testing.assert_close(cooled, plain / 2)
