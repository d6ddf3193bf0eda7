"""Builds OpenAI's model class, even from the `clip` folder of a tree such as MaPLe's, with further arguments."""

from __future__ import annotations

import inspect
from typing import Any

from cocoamix import compat

from .backbones import Sizes

# With these values, the class in MaPLe's tree is equivalent to OpenAI's: CoOp's blocks, no tokens in any layer.
PLAIN_DESIGN = {
    "trainer": "CoOp",
    "vision_depth": 0,
    "vision_ctx": 0,
    "language_depth": 0,
    "language_ctx": 0,
    "maple_length": 0,
}


def build_openai(sizes: Sizes) -> Any:
    """Return an instance of OpenAI's model class with these sizes and random weights.

    Raises:
        ImportError: The package `clip` has no such class, or one with unknown arguments.
    """
    compat.import_openai_clip()
    from clip.model import CLIP

    given: dict[str, Any] = {
        "embed_dim": sizes.embedding,
        "image_resolution": sizes.resolution,
        "vision_layers": sizes.vision_layers,
        "vision_width": sizes.vision_width,
        "vision_patch_size": sizes.patch,
        "context_length": sizes.context_length,
        "vocab_size": sizes.vocabulary,
        "transformer_width": sizes.text_width,
        "transformer_heads": sizes.text_heads,
        "transformer_layers": sizes.text_layers,
    }
    parameters = inspect.signature(CLIP).parameters
    further = [name for name, one in parameters.items() if _is_needed(one) and name not in (*given, "design_details")]
    place = inspect.getfile(CLIP)
    if further:
        raise ImportError(f"the class CLIP in {place} is not OpenAI's: it needs {', '.join(further)}")
    if "design_details" not in parameters:
        return CLIP(**given)
    try:
        return CLIP(**given, design_details=dict(PLAIN_DESIGN))
    except Exception as error:  # another tree's code may raise anything
        raise ImportError(f"the class CLIP in {place} is not OpenAI's: it refuses MaPLe's design_details") from error


def _is_needed(parameter: inspect.Parameter) -> bool:
    named = parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return named and parameter.default is inspect.Parameter.empty
