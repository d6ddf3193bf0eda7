"""Diagnosis of non-finite features of a frozen CLIP: which image or class, and whether weights or precision cause them.

Used only when a loss or logits are not finite, to tell a broken model from training that diverged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cocoamix.errors import UserError

from .model import FrozenCLIP

_TEMPLATE = "a photo of a {}."  # nothing in it is trained


def in_images(clip: FrozenCLIP, features: Tensor, files: Sequence[str]) -> UserError | None:
    """Return an error if (B, embedding) image features are not finite. `files` are the images, if known."""
    bad = _bad_rows(features)
    if not bad:
        return None
    known = len(files) == len(features)
    first = files[bad[0]] if known else f"image {bad[0] + 1} of a batch"
    others = f" and {len(bad) - 1} more of its batch" if len(bad) > 1 else ""
    return UserError(
        f"The image features of {clip.name} are not finite for {first}{others}. "
        + _advice(clip, "visual", clip.visual, "Repair the image, or use other weights (MODEL.BACKBONE.WEIGHTS).")
    )


@torch.no_grad()
def in_text(clip: FrozenCLIP, classnames: Sequence[str]) -> UserError | None:
    """Return an error if the frozen text encoder gives non-finite features, or the logit scale is not finite."""
    other = "Use other weights (MODEL.BACKBONE.WEIGHTS)."
    if not math.isfinite(clip.logit_scale):
        return UserError(f"The logit scale of {clip.name} is {clip.logit_scale}. {other}")
    bad = _bad_rows(clip.encode_classes(classnames, [_TEMPLATE]))
    if not bad:
        return None
    first = "all classes" if len(bad) == len(classnames) else repr(classnames[bad[0]])
    others = f" and {len(bad) - 1} more classes" if 1 < len(bad) < len(classnames) else ""
    return UserError(
        f"The text features of {clip.name} are not finite for {first}{others}. "
        + _advice(clip, "text", clip.text, other)
    )


def _bad_rows(features: Tensor) -> list[int]:
    rows: list[int] = (~torch.isfinite(features).all(dim=-1)).nonzero().flatten().tolist()
    return rows


def _advice(clip: FrozenCLIP, name: str, tower: nn.Module, other: str) -> str:
    """Return what to do about non-finite weights, or else about a low precision, or else `other`."""
    # The state dict excludes attention masks, which are infinite by design.
    broken = [key for key, value in tower.state_dict().items() if not torch.isfinite(value).all()]
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        return f"Its weights are not finite ({name}.{broken[0]}{more}): replace their file (MODEL.BACKBONE.WEIGHTS)."
    return other if clip.precision == "fp32" else f"Use PREC fp32 (now {clip.precision})."
