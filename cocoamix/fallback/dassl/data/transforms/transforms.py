"""From a PIL image to a tensor, by the names in INPUT.TRANSFORMS."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from dassl.utils import check_availability
from PIL import Image
from yacs.config import CfgNode

from cocoamix.compat import ensure_torchvision

ensure_torchvision()

from torchvision import transforms as T  # noqa: E402
from torchvision.transforms import functional as F  # noqa: E402

INTERPOLATION_MODES = {
    "bilinear": T.InterpolationMode.BILINEAR,
    "bicubic": T.InterpolationMode.BICUBIC,
    "nearest": T.InterpolationMode.NEAREST,
}

# In the order in which they are applied, whatever the order in the config.
_ON_IMAGES = [
    "random_translation",
    "random_crop",
    "random_resized_crop",
    "random_flip",
    "colorjitter",
    "randomgrayscale",
    "gaussian_blur",
]
_ON_TENSORS = ["cutout", "normalize", "gaussian_noise", "instance_norm"]
# center_crop is a habit of old configs: test images are always cropped so, training images never.
AVAI_CHOICES = [*_ON_IMAGES, *_ON_TENSORS, "center_crop"]


class Random2DTranslation:
    """Resize to (height, width); with probability p, to 9/8 of it and crop at a random place."""

    def __init__(
        self,
        height: int,
        width: int,
        p: float = 0.5,
        interpolation: T.InterpolationMode = T.InterpolationMode.BILINEAR,
    ) -> None:
        self.height, self.width, self.p, self.interpolation = height, width, p, interpolation

    def __call__(self, img: Image.Image) -> Image.Image:
        if random.random() >= self.p:
            return F.resize(img, [self.height, self.width], self.interpolation)
        height, width = round(self.height * 1.125), round(self.width * 1.125)
        top, left = random.randint(0, height - self.height), random.randint(0, width - self.width)
        return F.crop(F.resize(img, [height, width], self.interpolation), top, left, self.height, self.width)


class InstanceNormalization:
    """Give each channel of an image zero mean and unit deviation."""

    def __init__(self, eps: float = 1e-8) -> None:
        self.eps = eps

    def __call__(self, img: torch.Tensor) -> torch.Tensor:
        deviation, mean = torch.std_mean(img, dim=(1, 2), keepdim=True)
        return (img - mean) / (deviation + self.eps)


class Cutout:
    """Blank `n_holes` squares with random centres; a square may stick out of the image."""

    def __init__(self, n_holes: int = 1, length: int = 16) -> None:
        self.n_holes, self.length = n_holes, length

    def __call__(self, img: torch.Tensor) -> torch.Tensor:
        img = img.clone()
        half = self.length // 2
        for _ in range(self.n_holes):
            row, column = np.random.randint(img.shape[1]), np.random.randint(img.shape[2])
            img[:, max(row - half, 0) : row + half, max(column - half, 0) : column + half] = 0
        return img


class GaussianNoise:
    """Add noise with probability p."""

    def __init__(self, mean: float = 0, std: float = 0.15, p: float = 0.5) -> None:
        self.mean, self.std, self.p = mean, std, p

    def __call__(self, img: torch.Tensor) -> torch.Tensor:
        if random.random() >= self.p:
            return img
        return img + torch.randn_like(img) * self.std + self.mean


def build_transform(cfg: CfgNode, is_train: bool = True, choices: Sequence[str] | None = None) -> Any:
    """Build the transform for training or test images. `choices` replaces INPUT.TRANSFORMS."""
    if cfg.INPUT.NO_TRANSFORM:
        print("Images are not transformed (INPUT.NO_TRANSFORM)")
        return None
    choices = cfg.INPUT.TRANSFORMS if choices is None else choices
    for choice in choices:
        check_availability(choice, AVAI_CHOICES, "INPUT.TRANSFORMS")
    mode = interpolation_mode(cfg)
    size = tuple(cfg.INPUT.SIZE)

    if is_train:
        before = [name for name in _ON_IMAGES if name in choices]
        after = [name for name in _ON_TENSORS if name in choices]
        steps = [_build(name, cfg) for name in before]
        # A crop brings the image to its size; without one it must be resized.
        if not {"random_crop", "random_resized_crop"} & set(before):
            before.insert(0, "resize")
            steps.insert(0, T.Resize(size, interpolation=mode))
    else:
        before = ["resize", "center crop"]
        after = [name for name in ("normalize", "instance_norm") if name in choices]
        steps = [T.Resize(max(size), interpolation=mode), T.CenterCrop(size)]
    steps += [T.ToTensor(), *(_build(name, cfg) for name in after)]
    listed = ", ".join([*before, "to tensor", *after])
    print(f"{'Training' if is_train else 'Test'} images ({size[0]}x{size[1]}): {listed}")
    return T.Compose(steps)


def plain_transform(cfg: CfgNode) -> Any:
    """Build the transform of an image that is not augmented: resized, and normalised if images are."""
    steps = [T.Resize(tuple(cfg.INPUT.SIZE), interpolation=interpolation_mode(cfg)), T.ToTensor()]
    return T.Compose(steps + [_build("normalize", cfg)] * ("normalize" in cfg.INPUT.TRANSFORMS))


def interpolation_mode(cfg: CfgNode) -> T.InterpolationMode:
    """Return torchvision's mode for INPUT.INTERPOLATION."""
    check_availability(cfg.INPUT.INTERPOLATION, list(INTERPOLATION_MODES), "INPUT.INTERPOLATION")
    return INTERPOLATION_MODES[cfg.INPUT.INTERPOLATION]


def _build(name: str, cfg: CfgNode) -> Any:
    given, size = cfg.INPUT, tuple(cfg.INPUT.SIZE)
    if name == "random_translation":
        return Random2DTranslation(size[0], size[1])
    if name == "random_crop":
        return T.RandomCrop(size, padding=given.CROP_PADDING)
    if name == "random_resized_crop":
        return T.RandomResizedCrop(size, scale=given.RRCROP_SCALE, interpolation=interpolation_mode(cfg))
    if name == "random_flip":
        return T.RandomHorizontalFlip()
    if name == "colorjitter":
        return T.ColorJitter(given.COLORJITTER_B, given.COLORJITTER_C, given.COLORJITTER_S, given.COLORJITTER_H)
    if name == "randomgrayscale":
        return T.RandomGrayscale(p=given.RGS_P)
    if name == "gaussian_blur":
        return T.RandomApply([T.GaussianBlur(given.GB_K)], p=given.GB_P)
    if name == "cutout":
        return Cutout(given.CUTOUT_N, given.CUTOUT_LEN)
    if name == "normalize":
        return T.Normalize(mean=given.PIXEL_MEAN, std=given.PIXEL_STD)
    if name == "gaussian_noise":
        return GaussianNoise(given.GN_MEAN, given.GN_STD)
    return InstanceNormalization()
