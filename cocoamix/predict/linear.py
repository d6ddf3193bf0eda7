"""Expresses the logits of a classifier as matrices, which are found by probing it, for exports."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cocoamix.errors import UserError

from .classifier import Classifier

_LARGEST_ERROR = 1e-3  # of a logit, which is of the order of 10 to 100


@dataclass(frozen=True)
class Linear:
    """Logits = normalised features @ matrix.T + raw features @ raw.T + bias.

    Attributes:
        matrix: (C, embedding) for unit vectors.
        raw: (C, embedding) for features that are not normalised; None if the method does not use them.
        bias: (C,); None if it is zero.
    """

    matrix: Tensor
    raw: Tensor | None = None
    bias: Tensor | None = None

    def logits(self, features: Tensor) -> Tensor:
        """Return the (B, C) logits of (B, embedding) features that are not normalised."""
        found = F.normalize(features, dim=-1) @ self.matrix.t()
        if self.raw is not None:
            found = found + features @ self.raw.t()
        return found if self.bias is None else found + self.bias


@torch.no_grad()
def find_linear(classifier: Classifier) -> Linear:
    """Return the matrices of a classifier; raise a UserError if its logits are not linear in the image features."""
    trainer = classifier.trainer
    if len(trainer.clip.each()) > 1:
        raise UserError(
            f"{classifier.run.trainer} uses {len(trainer.clip.each())} CLIP models, but an export contains "
            "one. Train on one backbone to export it."
        )
    size = trainer.clip.sizes.embedding
    identity = torch.eye(size, device=trainer.device)
    bias = trainer.infer(torch.zeros(1, size, device=trainer.device))[0]
    first = trainer.infer(identity)
    raw = trainer.infer(2 * identity) - first if trainer.raw_images else torch.zeros_like(first)
    matrix = first - raw - bias
    found = Linear(
        matrix.t().contiguous().cpu(),
        raw.t().contiguous().cpu() if bool(raw.any()) else None,
        bias.cpu() if bool(bias.any()) else None,
    )
    _refuse_nonlinear(classifier, found)
    return found


def _refuse_nonlinear(classifier: Classifier, found: Linear) -> None:
    """Raise a UserError if the matrices do not reproduce the logits, for example if prompts depend on the image."""
    trainer = classifier.trainer
    features = torch.randn(8, trainer.clip.sizes.embedding, generator=torch.Generator().manual_seed(0))
    given = features if trainer.raw_images else F.normalize(features, dim=-1)
    wanted = trainer.infer(given.to(trainer.device)).cpu()
    error = float((found.logits(features) - wanted).abs().max())
    if not error < _LARGEST_ERROR:
        raise UserError(
            f"{classifier.run.trainer} makes a prompt for every image, so no fixed matrix gives its "
            "logits. It cannot be exported; use `cocoamix predict`."
        )
