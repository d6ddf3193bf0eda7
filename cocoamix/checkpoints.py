"""Checkpoints: written whole or not at all, plain tensors and containers, read without running their code."""

from __future__ import annotations

import os
import pickle
import types
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .errors import UserError
from .files import write_atomically, write_text

BEST = "model-best.pth.tar"
POINTER = "checkpoint"  # text file that names the newest checkpoint of a folder


def epoch_file(epoch: int) -> str:
    """Return CoOp's file name for a checkpoint after `epoch` epochs."""
    return f"model.pth.tar-{epoch}"


def save(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically."""
    write_atomically(path, lambda file: torch.save(dict(content), file))


def point_to(path: Path) -> None:
    """Name `path` as the newest checkpoint of its folder."""
    write_text(path.parent / POINTER, path.name + "\n")


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Dassl's own checkpoints pickle a live scheduler, which safe loading refuses. Of those the tensors and plain
    containers are read, and every other object is replaced by an inert blank; nothing in the file is executed.
    """
    try:
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            content = torch.load(path, map_location="cpu", pickle_module=_inert_pickle)
    except FileNotFoundError as error:
        raise UserError(f"There is no checkpoint at {path}.") from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} cannot be read as a checkpoint: it is cut short, altered or of another kind. "
            "Train again, or name another epoch with --load-epoch."
        ) from error
    if not isinstance(content, dict) or not isinstance(content.get("state_dict", {}), Mapping):
        raise UserError(f"{path} is not a checkpoint of a CoOp-style trainer: it has no state_dict.")
    return content


class _Blank:
    """What an object of an unknown class becomes: it takes any state and does nothing with it."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        pass

    def __call__(self, *args: object, **kwargs: object) -> _Blank:
        return _Blank()

    def __setstate__(self, state: object) -> None:
        pass

    def __setitem__(self, key: object, value: object) -> None:
        pass

    def append(self, item: object) -> None:
        pass

    def extend(self, items: object) -> None:
        pass


_TENSOR_PARTS = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch", "Size"): torch.Size,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch._utils", "_rebuild_parameter"): torch._utils._rebuild_parameter,
}


class _InertUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and (name.endswith("Storage") or isinstance(getattr(torch, name, None), torch.dtype)):
            return getattr(torch, name)
        return _TENSOR_PARTS.get((module, name), _Blank)


# torch.load takes its unpickler from a module.
_inert_pickle: Any = types.ModuleType("inert_pickle")
_inert_pickle.Unpickler = _InertUnpickler
_inert_pickle.load = lambda file, **options: _InertUnpickler(file, **options).load()


def plain_schedule(schedule: Any) -> dict[str, Any]:
    """Return the state of a learning-rate schedule without live objects; a warm-up's successor apart."""
    state = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in vars(schedule).items()
        if isinstance(value, (int, float, str, bool)) or _numbers(value)
    }
    successor = getattr(schedule, "successor", None)
    return {"own": state, "successor": plain_schedule(successor) if successor is not None else None}


def _numbers(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, (int, float)) for item in value)


def restore_schedule(schedule: Any, state: Mapping[str, Any]) -> None:
    """Put the state of `plain_schedule` back into the live schedule and its successor."""
    vars(schedule).update(state["own"])
    if state["successor"] is not None:
        restore_schedule(schedule.successor, state["successor"])


def load_into(module: nn.Module, state: Mapping[str, Tensor], origin: str) -> list[str]:
    """Load the trained tensors of `state` into `module`; return notes on what was left out.

    Class-name embeddings (`token_*`) are derived from the current class names and never loaded.
    Keys that `module` lacks are listed, keys that `state` lacks are refused.
    """
    wanted = {name for name, _ in module.named_parameters()}
    # Class-name embeddings belong to the class list, wherever in the model a peer registered them.
    offered = {key: value for key, value in state.items() if not key.rsplit(".", 1)[-1].startswith("token_")}
    missing = sorted(wanted - set(offered))
    if missing:
        listed = ", ".join(sorted(offered)) or "nothing"
        raise UserError(f"{origin} lacks {', '.join(missing)} (it holds {listed}): it is of another trainer.")
    for name, parameter in module.named_parameters():
        if offered[name].shape != parameter.shape:
            raise UserError(
                f"{origin} does not fit: {name} is {_shape(offered[name])} there and {_shape(parameter)} here. "
                "It was trained on another backbone, another N_CTX or CTX_INIT, or with class-specific contexts (CSC)."
            )
    module.load_state_dict({name: offered[name] for name in wanted}, strict=False)
    unexpected = sorted(set(offered) - wanted)
    return [f"{origin} also holds {', '.join(unexpected)}, not used here"] if unexpected else []


def _shape(tensor: Tensor) -> str:
    return " x ".join(str(size) for size in tensor.shape)
