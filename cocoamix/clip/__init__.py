"""The frozen CLIP: loading, tokens, templates, text encoder."""

from .layout import Layout, Prompts
from .model import FrozenCLIP, load_clip
from .tokens import tokenize

__all__ = ["FrozenCLIP", "Layout", "Prompts", "load_clip", "tokenize"]
