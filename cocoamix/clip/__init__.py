"""The frozen CLIP: loading, tokens, templates and the text encoder."""

from .model import FrozenCLIP, load_clip
from .packing import Layout, Prompts
from .tokens import tokenize

__all__ = ["FrozenCLIP", "Layout", "Prompts", "load_clip", "tokenize"]
