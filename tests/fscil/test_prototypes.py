"""FACT's network, prototypes and mixture; tests/methods has its loss and its logits by hand."""

from __future__ import annotations

import pytest
import torch

from cocoamix.fscil.prototypes import (
    ForwardCompatible,
    class_means,
    mix_pairs,
    mixed_log_probabilities,
)

CLASSES, VIRTUAL, WIDTH, T = 5, 4, 12, 16.0


def model(seed: int = 0) -> ForwardCompatible:
    made = ForwardCompatible(WIDTH, 6, CLASSES, VIRTUAL, 2, seed)
    torch.manual_seed(seed)
    with torch.no_grad():  # as after training: not the identity, and virtual rows that have moved
        made.network.outer.weight.normal_()
        made.virtual.add_(torch.randn(VIRTUAL, WIDTH))
    return made


def test_network_starts_as_the_identity() -> None:
    """The network is the identity, and all prototypes are orthogonal; the seed determines them."""
    made = ForwardCompatible(WIDTH, 6, CLASSES, VIRTUAL, 2, 1)
    features = torch.randn(3, WIDTH)
    assert torch.equal(made.network(features), features)
    rows = torch.cat([made.prototypes, made.virtual]).detach()
    assert torch.allclose(rows @ rows.t(), torch.eye(9), atol=1e-5)
    assert torch.equal(made.fixed, made.virtual)
    again, other = (ForwardCompatible(WIDTH, 6, CLASSES, VIRTUAL, 2, seed) for seed in (1, 2))
    assert torch.equal(again.virtual, made.virtual)
    assert torch.equal(again.open_to, made.open_to)
    assert not torch.equal(other.virtual, made.virtual)


def test_virtual_prototypes_are_open_to_two_classes() -> None:
    """Each virtual prototype is open to two base classes; a class not chosen may take any."""
    mask = ForwardCompatible(WIDTH, 6, 9, 3, 2, 0).open_to
    left_out = mask.all(dim=1)
    assert left_out.any()
    assert (mask[~left_out].sum(dim=0) == 2).all()


def test_losses_without_pairs_or_virtual_prototypes_are_fewer() -> None:
    features, labels = torch.randn(4, WIDTH), torch.tensor([0, 1, 2, 3])
    assert len(model().losses(features, labels, T, None)[0]) == 2
    alone = ForwardCompatible(WIDTH, 6, CLASSES, 0, 2, 0)
    assert len(alone.losses(features, labels, T, features)[0]) == 1


def test_only_images_of_different_classes_are_mixed() -> None:
    """Only images of different classes are mixed, all with the same shares."""
    torch.manual_seed(3)
    labels = torch.tensor([0, 0, 1, 1, 2])
    mixed = mix_pairs(torch.eye(5), labels, 0.5)
    assert mixed is not None
    assert mixed.sum(dim=1) == pytest.approx(torch.ones(len(mixed)))
    for row in mixed:
        pair = row.nonzero().squeeze(1)
        assert len(pair) == 2
        assert labels[pair[0]] != labels[pair[1]]
    assert len({round(float(share), 5) for row in mixed for share in row if share}) == 2
    assert mix_pairs(torch.eye(2), torch.tensor([1, 1]), 0.5) is None


def test_class_means_match_plain_means() -> None:
    features, labels = torch.randn(7, 3), torch.tensor([2, 0, 0, 1, 2, 2, 1])
    for label, mean in enumerate(class_means(features, labels, 3)):
        torch.testing.assert_close(mean, features[labels == label].mean(dim=0))


def test_mixture_of_directions() -> None:
    """Each prototype contributes by its direction, whatever its length and that of the others."""
    torch.manual_seed(0)
    embedded, rows, virtual = torch.randn(2, WIDTH), torch.randn(3, WIDTH), torch.randn(VIRTUAL, WIDTH)
    mixture = mixed_log_probabilities(embedded, rows, virtual, T, 0.3).exp()
    scaled = mixed_log_probabilities(3 * embedded, rows * torch.tensor([[1.0], [2.0], [9.0]]), 5 * virtual, T, 0.3)
    torch.testing.assert_close(scaled.exp(), mixture, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(mixture.sum(dim=1), torch.ones(2))
    without = mixed_log_probabilities(embedded, rows, virtual, T, 0.0).exp()
    assert not torch.allclose(without, mixture, atol=1e-3)
    assert torch.isfinite(mixed_log_probabilities(embedded, rows, virtual, T, 1.0)).all()
