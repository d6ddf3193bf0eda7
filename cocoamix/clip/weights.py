"""Reads CLIP weights as a state dict with OpenAI's key names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cocoamix.errors import UserError
from cocoamix.io import checkpoints
from cocoamix.io.safe_pickle import is_torchscript, read_torchscript

from . import tiny

# Entries of OpenAI's archives that are not weights.
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask")
_NEEDED = ("text_projection", "positional_embedding", "token_embedding.weight", "ln_final.weight", "logit_scale")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read OpenAI's TorchScript archive, a state dict, an open_clip checkpoint or safetensors, as fp32."""
    if not path.is_file():
        raise UserError(f"MODEL.BACKBONE.WEIGHTS names {path}, which is not a file.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Mapping[str, Any] = load_file(path)
            if tiny.is_packed(state):
                state = tiny.unpack(state)
        elif is_torchscript(path):
            state = read_torchscript(path)
        else:
            state = checkpoints.load(path)
    except UserError:
        raise
    except Exception as error:  # a damaged file may raise anything
        raise UserError(
            f"{path} cannot be read as CLIP weights: it is truncated, altered or of another kind."
        ) from error
    return _normalise(state, path)


def _normalise(state: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    # open_clip's training checkpoints wrap the state dict and prefix its keys.
    weights = {
        key: value.float() for key, value in checkpoints.weights_of(state, path).items() if key not in _NOT_WEIGHTS
    }
    missing = [key for key in _NEEDED if key not in weights]
    if missing or not any(key.startswith("visual.") for key in weights):
        lacking = ", ".join(missing) or "image encoder"
        raise UserError(f"{path} is not a CLIP model of OpenAI's architecture: it has no {lacking}.")
    return weights


def hash_weights(state: Mapping[str, Tensor]) -> str:
    """Return a hash of the names and values, which does not depend on the kind of file."""
    digest = hashlib.sha256()
    for key in sorted(state):
        if key in _NOT_WEIGHTS or key.endswith("num_batches_tracked"):
            continue
        value = state[key].detach().float().contiguous().cpu()
        digest.update(f"{key}{tuple(value.shape)}".encode())
        digest.update(value.numpy().data)
    return digest.hexdigest()
