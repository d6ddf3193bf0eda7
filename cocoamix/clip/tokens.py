"""CLIP's byte-pair tokeniser, from either CLIP package: both give the same tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from cocoamix import compat
from cocoamix.errors import UserError

from .backbones import CONTEXT_LENGTH

SOS = 49406
EOT = 49407  # the largest token, so arg-max over a row finds it


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    try:
        compat.import_openai_clip()
        from clip.simple_tokenizer import SimpleTokenizer
    except ImportError:
        try:
            compat.import_open_clip()
            from open_clip.tokenizer import SimpleTokenizer
        except ImportError as error:
            raise UserError(
                "No CLIP package is installed. `pip install clip-anytorch` or `pip install open_clip_torch`."
            ) from error
    return SimpleTokenizer()


@lru_cache(maxsize=100_000)
def encode(text: str) -> tuple[int, ...]:
    """Return the tokens of `text`, without the start and end tokens."""
    return tuple(_tokenizer().encode(text))


def tokenize(texts: Sequence[str], context_length: int = CONTEXT_LENGTH) -> torch.Tensor:
    """Return the (len(texts), context_length) tokens: SOS, the text, EOT, zeros."""
    rows = torch.zeros(len(texts), context_length, dtype=torch.long)
    for row, text in zip(rows, texts, strict=True):
        tokens = [SOS, *encode(text), EOT]
        if len(tokens) > context_length:
            raise UserError(
                f"The prompt {text!r} has {len(tokens)} tokens, but the model reads {context_length}. "
                "Shorten the class name, the template or the context."
            )
        row[: len(tokens)] = torch.tensor(tokens)
    return rows
