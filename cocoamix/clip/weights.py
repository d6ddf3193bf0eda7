"""Reading a file of CLIP weights into a state dict with OpenAI's key names."""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ..errors import UserError
from . import tiny

# Numbers that OpenAI's archives carry beside the weights.
_NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask")
_NEEDED = ("text_projection", "positional_embedding", "token_embedding.weight", "ln_final.weight", "logit_scale")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read OpenAI's TorchScript archive, a state dict, an open_clip checkpoint or safetensors, as fp32."""
    if not path.is_file():
        raise UserError(f"MODEL.BACKBONE.WEIGHTS names {path}, which is not a file.")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Mapping[str, Tensor] = load_file(path)
            if tiny.is_packed(state):
                state = tiny.unpack(state)
        elif _is_torchscript(path):
            state = torch.jit.load(str(path), map_location="cpu").state_dict()
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, zipfile.BadZipFile, ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read as CLIP weights: {_first_line(error)}") from error
    except Exception as error:  # safetensors has an exception class of its own
        if type(error).__module__.startswith("safetensors"):
            raise UserError(f"{path} cannot be read as CLIP weights: {_first_line(error)}") from error
        raise
    return _normalise(state, path)


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _normalise(state: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    inner = state.get("state_dict", state)  # open_clip's training checkpoints wrap it
    if not isinstance(inner, Mapping):
        raise UserError(f"{path} holds no state dict.")
    weights = {
        key.removeprefix("module."): value.float()
        for key, value in inner.items()
        if isinstance(value, Tensor) and key.removeprefix("module.") not in _NOT_WEIGHTS
    }
    missing = [key for key in _NEEDED if key not in weights]
    if missing:
        raise UserError(f"{path} is not a CLIP model of OpenAI's architecture: it has no {', '.join(missing)}.")
    return weights


def hash_weights(state: Mapping[str, Tensor]) -> str:
    """Hash the values by name, so that the same weights give the same hash from any kind of file."""
    digest = hashlib.sha256()
    for key in sorted(state):
        if key in _NOT_WEIGHTS or key.endswith("num_batches_tracked"):
            continue
        value = state[key].detach().float().contiguous().cpu()
        digest.update(f"{key}{tuple(value.shape)}".encode())
        digest.update(value.numpy().data)
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
