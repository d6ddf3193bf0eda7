"""Transforms from a PIL image to a tensor, from the names in INPUT.TRANSFORMS, with Dassl's and CoOp's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yacs.config import CfgNode

from cocoamix.compat import ensure_torchvision
from cocoamix.errors import check_choice
from cocoamix.io.screen import detail

ensure_torchvision()

from torchvision import transforms as T  # noqa: E402

_MODES = {mode: T.InterpolationMode(mode) for mode in ("bilinear", "bicubic", "nearest")}

# Augmentations of training images, built from cfg.INPUT. They are applied in this order, not in that of the config.
_AUGMENTATIONS: dict[str, Callable[[CfgNode], Any]] = {
    "random_crop": lambda settings: T.RandomCrop(tuple(settings.SIZE), padding=settings.CROP_PADDING),
    "random_resized_crop": lambda settings: T.RandomResizedCrop(
        tuple(settings.SIZE), scale=settings.RRCROP_SCALE, interpolation=_interpolation(settings)
    ),
    "random_flip": lambda settings: T.RandomHorizontalFlip(),
    "colorjitter": lambda settings: T.ColorJitter(
        settings.COLORJITTER_B, settings.COLORJITTER_C, settings.COLORJITTER_S, settings.COLORJITTER_H
    ),
    "randomgrayscale": lambda settings: T.RandomGrayscale(settings.RGS_P),
    "gaussian_blur": lambda settings: T.RandomApply([T.GaussianBlur(settings.GB_K)], p=settings.GB_P),
}
# Old configs list center_crop, but test images are always cropped that way and training images never.
_CHOICES = [*_AUGMENTATIONS, "normalize", "center_crop"]


def build_transform(cfg: CfgNode, is_train: bool = True) -> Any:
    """Return the transform of training or test images."""
    settings, size, choices = cfg.INPUT, tuple(cfg.INPUT.SIZE), cfg.INPUT.TRANSFORMS
    for choice in choices:
        check_choice("INPUT.TRANSFORMS", choice, _CHOICES)
    mode = _interpolation(settings)

    if is_train:
        names = [name for name in _AUGMENTATIONS if name in choices]
        steps = [_AUGMENTATIONS[name](settings) for name in names]
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
        steps.append(T.Normalize(mean=settings.PIXEL_MEAN, std=settings.PIXEL_STD))
    detail(f"{'Training' if is_train else 'Test'} images ({size[0]}x{size[1]}): {', '.join(names)}")
    return T.Compose(steps)


def _interpolation(settings: CfgNode) -> T.InterpolationMode:
    """Return torchvision's mode for INPUT.INTERPOLATION."""
    check_choice("INPUT.INTERPOLATION", settings.INTERPOLATION, list(_MODES))
    return _MODES[settings.INTERPOLATION]
