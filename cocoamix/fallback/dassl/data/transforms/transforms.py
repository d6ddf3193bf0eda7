"""Transforms from a PIL image to a tensor, from the names in INPUT.TRANSFORMS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dassl.config import refuse_unsupported
from dassl.utils import check_availability
from yacs.config import CfgNode

from cocoamix.compat import ensure_torchvision
from cocoamix.io.screen import detail

ensure_torchvision()

from torchvision import transforms as T  # noqa: E402

INTERPOLATION_MODES = {mode: T.InterpolationMode(mode) for mode in ("bilinear", "bicubic", "nearest")}

# Augmentations of training images, built from cfg.INPUT. They are applied in this order, not in that of the config.
_AUGMENTATIONS: dict[str, Callable[[CfgNode], Any]] = {
    "random_crop": lambda given: T.RandomCrop(tuple(given.SIZE), padding=given.CROP_PADDING),
    "random_resized_crop": lambda given: T.RandomResizedCrop(
        tuple(given.SIZE), scale=given.RRCROP_SCALE, interpolation=_interpolation(given)
    ),
    "random_flip": lambda given: T.RandomHorizontalFlip(),
    "colorjitter": lambda given: T.ColorJitter(
        given.COLORJITTER_B, given.COLORJITTER_C, given.COLORJITTER_S, given.COLORJITTER_H
    ),
    "randomgrayscale": lambda given: T.RandomGrayscale(given.RGS_P),
    "gaussian_blur": lambda given: T.RandomApply([T.GaussianBlur(given.GB_K)], p=given.GB_P),
}
# Old configs list center_crop, but test images are always cropped that way and training images never.
AVAI_CHOICES = [*_AUGMENTATIONS, "normalize", "center_crop"]


def build_transform(cfg: CfgNode, is_train: bool = True, choices: Sequence[str] | None = None) -> Any:
    """Build the transform for training or test images. `choices` replaces INPUT.TRANSFORMS."""
    given, size = cfg.INPUT, tuple(cfg.INPUT.SIZE)
    choices = given.TRANSFORMS if choices is None else choices
    for choice in choices:
        check_availability(choice, AVAI_CHOICES, "INPUT.TRANSFORMS")
    refuse_unsupported(given, "INPUT.")
    mode = _interpolation(given)

    if is_train:
        names = [name for name in _AUGMENTATIONS if name in choices]
        steps = [_AUGMENTATIONS[name](given) for name in names]
        # A crop also resizes the image; without one it must be resized.
        if not {"random_crop", "random_resized_crop"} & set(names):
            names.insert(0, "resize")
            steps.insert(0, T.Resize(size, interpolation=mode))
    else:
        names = ["resize", "center crop"]
        steps = [T.Resize(max(size), interpolation=mode), T.CenterCrop(size)]
    names.append("to tensor")
    steps.append(T.ToTensor())
    if "normalize" in choices:
        names.append("normalize")
        steps.append(T.Normalize(mean=given.PIXEL_MEAN, std=given.PIXEL_STD))
    detail(f"{'Training' if is_train else 'Test'} images ({size[0]}x{size[1]}): {', '.join(names)}")
    return T.Compose(steps)


def _interpolation(given: CfgNode) -> T.InterpolationMode:
    """Return torchvision's mode for INPUT.INTERPOLATION."""
    check_availability(given.INTERPOLATION, list(INTERPOLATION_MODES), "INPUT.INTERPOLATION")
    return INTERPOLATION_MODES[given.INTERPOLATION]
