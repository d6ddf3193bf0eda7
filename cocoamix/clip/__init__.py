"""The frozen CLIP: loading, tokens, templates, text encoder."""

from .model import FrozenCLIP, load_clip
from .tokens import tokenize

__all__ = ["FrozenCLIP", "load_clip", "tokenize"]
