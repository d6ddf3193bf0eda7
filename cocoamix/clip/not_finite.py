"""Why features of a frozen CLIP are not finite: which image or class, and whether weights or precision are to blame.

Asked only once a loss or logits are not finite, to tell a broken model from a training that has diverged.
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
    """Return what is said of (B, embedding) image features that are not finite. files: the images, if known."""
    bad = _bad_rows(features)
    if not bad:
        return None
    known = len(files) == len(features)
    first = files[bad[0]] if known else f"image {bad[0] + 1} of a batch"
    others = f" and {len(bad) - 1} more of its batch" if len(bad) > 1 else ""
    return UserError(
        f"The image features of {clip.name} are not finite for {first}{others}. "
        + _way_out(clip, "visual", clip.visual, "Repair the image, or use other weights (MODEL.BACKBONE.WEIGHTS).")
    )


@torch.no_grad()
def in_text(clip: FrozenCLIP, classnames: Sequence[str]) -> UserError | None:
    """Return what is said where the text tower, or the scale of the logits, is broken whatever is trained."""
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
        + _way_out(clip, "text", clip.text, other)
    )


def _bad_rows(features: Tensor) -> list[int]:
    rows: list[int] = (~torch.isfinite(features).all(dim=-1)).nonzero().flatten().tolist()
    return rows


def _way_out(clip: FrozenCLIP, name: str, tower: nn.Module, other: str) -> str:
    """Blame weights that are not finite, else a precision that may be too low; else say `other`."""
    # The state dict, because a mask of attention, which is infinite by design, is not part of it.
    broken = [key for key, value in tower.state_dict().items() if not torch.isfinite(value).all()]
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        return f"Its weights are not finite ({name}.{broken[0]}{more}): replace their file (MODEL.BACKBONE.WEIGHTS)."
    return other if clip.precision == "fp32" else f"Use PREC fp32 (now {clip.precision})."
