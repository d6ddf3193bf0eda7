"""Images that a caller names or holds in memory: paths, PIL images, arrays and tensors, as items of a dataset."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageOps

from cocoamix.errors import UserError

from .reading import to_rgb

AnyImage: TypeAlias = "str | os.PathLike[str] | Image.Image | np.ndarray[Any, Any] | torch.Tensor"


@dataclass(frozen=True)
class Item:
    """An image file, with the attributes of Dassl's `Datum`. `upright` is whether the EXIF orientation is applied."""

    impath: str
    label: int = 0
    classname: str = ""
    domain: int = 0
    upright: bool = False


@dataclass(frozen=True, kw_only=True)
class PixelItem(Item):
    """An image in memory; `impath` is only a name, and `identity` differs for different pixels."""

    identity: str
    pixels: Image.Image = field(repr=False, compare=False)

    def draw(self) -> Image.Image:
        """Return the image."""
        return self.pixels


def as_many(images: Any) -> Iterable[AnyImage]:
    """Return an iterable of images for one image or several."""
    array = isinstance(images, (np.ndarray, torch.Tensor)) and images.ndim < 4
    return [images] if array or isinstance(images, (str, os.PathLike, Image.Image)) else images


def as_item(image: AnyImage, number: int, upright: bool = False, label: int = 0, classname: str = "") -> Item:
    """Return an image as an item.

    Args:
        image: A path, a PIL image, an array of height x width (x channels), or a tensor of channels x height x width.
            Whole numbers run up to 255 (65535 for 16 bits), other numbers from 0 to 1.
        number: Its index among the caller's images, which names it if it has no path.
        upright: Whether to rotate it by its EXIF orientation.
        label: Its label.
        classname: The name of its class.
    """
    if isinstance(image, (str, os.PathLike)):
        return Item(os.fspath(image), label, classname, upright=upright)
    if isinstance(image, Image.Image) and upright:
        image = ImageOps.exif_transpose(image)
    pixels = _as_rgb(image, number)
    digest = hashlib.blake2b(pixels.tobytes() + str(pixels.size).encode(), digest_size=16)
    return PixelItem(f"image {number}", label, classname, identity=digest.hexdigest(), pixels=pixels)


def _as_rgb(image: Any, number: int) -> Image.Image:
    if isinstance(image, Image.Image):
        return to_rgb(image)
    if isinstance(image, torch.Tensor):
        image = image.detach().cpu()
        image = (image.permute(1, 2, 0) if image.dim() == 3 else image).numpy()
    if not isinstance(image, np.ndarray):
        kind = type(image).__name__
        raise UserError(f"Image {number} is of type {kind}. Give a path, a PIL image, an array or a tensor.")
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)) or 0 in image.shape:
        raise UserError(
            f"Image {number} has the shape {tuple(image.shape)}. An array is height x width (x 1, 3 or 4 channels), "
            "a tensor channels x height x width."
        )
    pixels = _as_bytes(image, number)
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels).convert("RGB")


def _as_bytes(image: np.ndarray[Any, Any], number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    if image.dtype == np.uint8:
        return image
    if image.dtype == np.uint16:
        return (image // 257).astype(np.uint8)
    if image.dtype == bool:
        return image.astype(np.uint8) * 255
    if not np.issubdtype(image.dtype, np.floating):
        raise UserError(f"Image {number} is of {image.dtype}. Use uint8, uint16, or floats from 0 to 1.")
    if not np.isfinite(image).all() or image.min() < 0 or image.max() > 1:
        raise UserError(f"Image {number} has values outside the range 0 to 1. Scale it, or use whole numbers to 255.")
    return np.rint(image * 255).astype(np.uint8)
