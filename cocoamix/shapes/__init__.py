"""Synthetic images of one coloured, textured shape, 32 x 32 pixels, generated from a seed.

They stand in for photographs, so that nothing has to be downloaded. An image depends only on the seed, item,
composition, domain and severity.

    cocoamix shapes sheet FILE.png     draw a contact sheet of every domain
    cocoamix shapes write DIR          write every dataset as PNG files, in CoOp's layout
    cocoamix shapes speed              time the drawing
"""

from .drawing import draw
from .sets import DATASETS, FAMILY, SyntheticDataset, write
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
    "SyntheticDataset",
    "compositions",
    "draw",
    "write",
]
