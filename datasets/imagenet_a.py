"""ImageNet-A: photographs that classifiers misclassified when they were collected."""

from __future__ import annotations

from dassl.data.datasets import DATASET_REGISTRY

from cocoamix.registry import register

from .common.imagenet_folders import ImageNetVariant


@register(DATASET_REGISTRY)
class ImageNetA(ImageNetVariant):
    """200 of ImageNet's classes."""

    folder = "imagenet-adversarial"
    image_folder = "imagenet-a"
