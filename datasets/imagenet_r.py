"""ImageNet-R: renditions such as paintings, toys and cartoons."""

from __future__ import annotations

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.registry import register

from .common.imagenet_folders import ImageNetVariant


@register(DATASET_REGISTRY)
class ImageNetR(ImageNetVariant):
    """200 of ImageNet's classes."""

    folder = "imagenet-rendition"
    image_folder = "imagenet-r"
