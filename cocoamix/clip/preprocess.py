"""CLIP's preprocessing of test images, which all shipped configurations use."""

from __future__ import annotations

from typing import Any

from cocoamix.compat import ensure_torchvision

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


def make_transform(size: int) -> Any:
    """Return the transform from an RGB image to a (3, size, size) tensor: resize the shorter side, crop the centre."""
    ensure_torchvision()
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.Resize(size, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(size),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
