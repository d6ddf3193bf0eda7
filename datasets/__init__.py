"""The datasets. Importing this package registers them with Dassl and adds their keys to Dassl's defaults."""

from cocoamix.compat import ensure_torchvision

ensure_torchvision()  # real Dassl imports it

# isort: split
from dassl.config import cfg_default

from cocoamix.config.defaults import extend_cfg

from . import (
    caltech101,
    cifar100,
    cifar100_fscil,
    cub200_fscil,
    dtd,
    eurosat,
    fgvc_aircraft,
    food101,
    imagenet,
    imagenet_a,
    imagenet_r,
    imagenet_sketch,
    imagenetv2,
    mini_imagenet_fscil,
    oxford_flowers,
    oxford_pets,
    shapes,
    stanford_cars,
    sun397,
    ucf101,
)
from .own import csv_file, folder

extend_cfg(cfg_default, "DATASET.")  # another tree's trainers may use our datasets without our trainers

__all__ = [
    "caltech101",
    "cifar100",
    "cifar100_fscil",
    "csv_file",
    "cub200_fscil",
    "dtd",
    "eurosat",
    "fgvc_aircraft",
    "folder",
    "food101",
    "imagenet",
    "imagenet_a",
    "imagenet_r",
    "imagenet_sketch",
    "imagenetv2",
    "mini_imagenet_fscil",
    "oxford_flowers",
    "oxford_pets",
    "shapes",
    "stanford_cars",
    "sun397",
    "ucf101",
]
