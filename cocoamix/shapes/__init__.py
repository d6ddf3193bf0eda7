"""Drawn images of one coloured, textured shape, 32 x 32 pixels, generated from a seed.

They replace photographs if none can be downloaded. An image is a function of (seed, item, composition, domain,
severity) only.

    cocoamix shapes sheet FILE.png     a contact sheet of every domain
    cocoamix shapes write DIR          every dataset as PNG files, in CoOp's layout
    cocoamix shapes speed              how fast it draws
"""

from .drawing import draw
from .sets import DATASETS, FAMILY, DrawnDataset, write
from .world import COLOURS, DOMAINS, PRETRAINED, SHAPES, TEXTURES, Composition, compositions

__all__ = [
    "COLOURS",
    "DATASETS",
    "DOMAINS",
    "FAMILY",
    "PRETRAINED",
    "SHAPES",
    "TEXTURES",
    "Composition",
    "DrawnDataset",
    "compositions",
    "draw",
    "write",
]
