"""ImageNet-Sketch: drawings of ImageNet's thousand classes."""

from __future__ import annotations

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.registry import register

from .common.imagenet_folders import ImageNetVariant


@register(DATASET_REGISTRY)
class ImageNetSketch(ImageNetVariant):
    """Fifty drawings per class."""

    folder = "imagenet-sketch"
    image_folder = "images"
