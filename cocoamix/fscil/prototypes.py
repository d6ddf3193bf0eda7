"""FACT on image features of a frozen CLIP, in our interpretation: a residual network, and class and virtual prototypes.

FACT (Zhou et al., CVPR 2022) trains a ResNet. How later work adapted it to CLIP is not public. Here a residual network
on frozen features replaces the ResNet, and it is the features before it that are mixed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cocoamix.seeding import derive_seed, seeded


class ResidualNetwork(nn.Module):
    """phi(f) = f + B relu(A f), initially the identity because B is zero."""

    def __init__(self, width: int, hidden: int, seed: int) -> None:
        super().__init__()
        with seeded(seed):
            self.inner = nn.Linear(width, hidden)
            self.outer = nn.Linear(hidden, width)
        nn.init.zeros_(self.outer.weight)
        nn.init.zeros_(self.outer.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Return the embeddings of features."""
        changed: Tensor = self.outer(F.relu(self.inner(features)))
        return features + changed


class Prototypes(nn.Module):
    """One vector per class, for a session without training."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.prototypes = nn.Parameter(torch.zeros(count, width), requires_grad=False)


class ForwardCompatible(nn.Module):
    """The model of session 0: the network, prototypes of its classes, and virtual ones for later classes.

    `prototypes` is (C, width) and `virtual` (V, width); both are initialised with rows of one orthogonal matrix. The
    second loss uses a fixed copy of the initial virtual prototypes. Each virtual prototype is open to `open_to` base
    classes.
    """

    fixed: Tensor
    open_to: Tensor

    def __init__(self, width: int, hidden: int, classes: int, virtual: int, open_to: int, seed: int) -> None:
        super().__init__()
        self.network = ResidualNetwork(width, hidden, derive_seed(seed, "network"))
        rows = torch.empty(classes + virtual, width)
        with seeded(derive_seed(seed, "prototypes")):
            nn.init.orthogonal_(rows)
            chosen = [torch.randperm(classes)[:open_to] for _ in range(virtual)]
        self.prototypes = nn.Parameter(rows[:classes].clone())
        self.virtual = nn.Parameter(rows[classes:].clone())
        self.register_buffer("fixed", rows[classes:].clone(), persistent=False)
        mask = torch.zeros(classes, virtual, dtype=torch.bool)
        for number, bases in enumerate(chosen):
            mask[bases, number] = True
        # A class without an open virtual prototype may use any.
        self.register_buffer("open_to", mask | ~mask.any(dim=1, keepdim=True), persistent=False)

    def losses(
        self, features: Tensor, labels: Tensor, temperature: float, mixed: Tensor | None
    ) -> tuple[list[Tensor], Tensor]:
        """Return FACT's losses L1 to L4, and the (B, C) logits.

        `mixed` are (N, width) mixed features of images of different classes; without them, only L1 and L2 exist.
        """
        embedded, classes = self.network(features), len(self.prototypes)
        logits = temperature * cosine(embedded, self.prototypes)
        whole = torch.cat([logits, temperature * cosine(embedded, self.fixed)], dim=1)
        found = [F.cross_entropy(logits, labels)]
        if not len(self.virtual):
            return found, logits
        # After its own class, an image should be nearest to a virtual prototype that is open to that class.
        nearest = whole[:, classes:].detach().masked_fill(~self.open_to[labels], -torch.inf).argmax(dim=1)
        found.append(F.cross_entropy(_without(whole, labels), classes + nearest))
        if mixed is not None:
            # A mixture of two classes should be nearest to a virtual prototype, and then to a base class.
            between = temperature * cosine(self.network(mixed), torch.cat([self.prototypes, self.virtual]))
            base, virtual = between.detach().split([classes, len(self.virtual)], dim=1)
            best = classes + virtual.argmax(dim=1)
            found.append(F.cross_entropy(between, best))
            found.append(F.cross_entropy(_without(between, best), base.argmax(dim=1)))
        return found, logits


def cosine(features: Tensor, rows: Tensor) -> Tensor:
    """Return the (B, C) cosine similarities of features and prototypes."""
    return F.normalize(features, dim=-1) @ F.normalize(rows, dim=-1).t()


def _without(logits: Tensor, places: Tensor) -> Tensor:
    """Return logits with one entry per row masked out."""
    return logits.scatter(1, places[:, None], -1e9)


def mix_pairs(features: Tensor, labels: Tensor, alpha: float) -> Tensor | None:
    """Return b f + (1 - b) f' for pairs of images of different classes; None if there are no such pairs.

    b is drawn once from Beta(alpha, alpha), and the partners by a permutation of all images.
    """
    order = torch.randperm(len(labels)).to(labels.device)
    different = labels != labels[order]
    if not bool(different.any()):
        return None
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    return share * features[different] + (1 - share) * features[order][different]


def class_means(features: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Return the (C, width) mean features of each class. Every class must have features."""
    sums = features.new_zeros(classes, features.shape[1]).index_add(0, labels, features)
    return sums / labels.bincount(minlength=classes)[:, None]


def mixed_log_probabilities(
    embedded: Tensor, prototypes: Tensor, virtual: Tensor, temperature: float, eta: float
) -> Tensor:
    """Return the (B, C) logarithms of eta p_virtual + (1 - eta) p.

    p is the softmax of T cos. p_virtual is the softmax of (z V')(V N), the agreement of an image's and a class's
    similarities to the virtual prototypes V. All vectors are normalised.
    """
    own = (temperature * cosine(embedded, prototypes)).log_softmax(dim=1)
    if eta == 0 or not len(virtual):
        return own
    via_virtual = cosine(embedded, virtual) @ cosine(virtual, prototypes)
    parts = torch.stack([via_virtual.log_softmax(dim=1), own])
    shares = torch.tensor([eta, 1 - eta], device=own.device, dtype=own.dtype).log()
    return torch.logsumexp(parts + shares[:, None, None], dim=0)
