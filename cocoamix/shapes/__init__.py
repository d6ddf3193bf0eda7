"""A small world of pictures: one coloured, textured shape each, 32 px, drawn from a seed.

It stands in for photographs where none can be downloaded. A picture is a function of
(seed, item, composition, domain, severity) and of nothing else.

    python -m cocoamix.shapes sheet FILE.png     a contact sheet of every domain
    python -m cocoamix.shapes write DIR          every dataset as PNG files, in CoOp's layout
    python -m cocoamix.shapes speed              how fast it draws
"""

from .drawing import draw
from .sets import DATASETS, PictureSet, write
from .world import COLOURS, DOMAINS, SHAPES, TEXTURES, Composition, compositions

__all__ = [
    "COLOURS",
    "DATASETS",
    "DOMAINS",
    "SHAPES",
    "TEXTURES",
    "Composition",
    "PictureSet",
    "compositions",
    "draw",
    "write",
]
