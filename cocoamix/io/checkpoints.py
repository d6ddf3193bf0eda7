"""Checkpoints: written atomically, with plain tensors and containers, and read without running any code."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cocoamix.errors import UserError

from .archives import damaged_part
from .files import write_atomically, write_text
from .safe_pickle import inert_pickle, is_plain, is_torchscript

BEST = "model-best.pth.tar"
POINTER = "checkpoint"  # text file that names the newest checkpoint of a folder


def epoch_file(epoch: int) -> str:
    """Return CoOp's file name for a checkpoint after `epoch` epochs."""
    return f"model.pth.tar-{epoch}"


def save(path: str | os.PathLike[str], content: Mapping[str, Any]) -> None:
    """Write a checkpoint atomically."""
    packed = to_bytes(dict(content))
    write_atomically(path, lambda file: file.write(packed))


def to_bytes(content: Any) -> bytes:
    """Return what torch.save writes. If it writes to a file itself, it hides why that fails, such as a full disk."""
    packed = io.BytesIO()
    torch.save(content, packed)
    return packed.getvalue()


def point_to(path: Path) -> None:
    """Record `path` as the newest checkpoint of its folder."""
    write_text(path.parent / POINTER, path.name + "\n")


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a checkpoint onto the CPU.

    Dassl's own checkpoints pickle a live scheduler, which safe loading refuses. Their tensors and plain containers are
    read, and every other object is replaced by an inert blank; no code is run. Checksums are verified first, if the
    file has any.
    """
    if not Path(path).is_file():
        raise UserError(f"There is no checkpoint at {path}.")
    try:
        if is_torchscript(path):
            raise pickle.UnpicklingError("a TorchScript archive")
        damaged = damaged_part(path)
        if damaged is None:
            content = _unpickle(path)
    except Exception as error:  # a damaged file can raise anything
        raise UserError(
            f"{path} cannot be read as a checkpoint: it is truncated, altered or of another kind."
        ) from error
    if damaged is not None:
        raise UserError(
            f"{path} is damaged: {damaged} in it does not match its checksum. Restore the file or delete it."
        )
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a checkpoint: it holds {type(content).__name__}, not names and tensors.")
    return content


def _unpickle(path: str | os.PathLike[str]) -> Any:
    """Read the tensors and plain containers of a file; other objects become blanks."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if is_plain(content):  # safe loading also accepts functions and classes of torch
            return content
    except pickle.UnpicklingError:
        pass
    return torch.load(path, map_location="cpu", pickle_module=inert_pickle)


def weights_of(content: Mapping[str, Any], path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint or a bare state dict by name, without `module.` prefixes."""
    state = content.get("state_dict", content)
    tensors = {
        str(key).removeprefix("module."): value
        for key, value in (state.items() if isinstance(state, Mapping) else ())
        if isinstance(value, Tensor)
    }
    if not tensors:
        raise UserError(f"{path} is not a checkpoint of a CoOp-style trainer: it has no state_dict with tensors.")
    return tensors


def epochs_of(content: Mapping[str, Any]) -> int:
    """Return the number of epochs that a checkpoint was trained for; 0 if unknown."""
    epoch = content.get("epoch")
    return epoch if isinstance(epoch, int) else 0


def plain_schedule(schedule: Any) -> dict[str, Any]:
    """Return the state of a schedule as plain values, with that of the schedule after a warm-up separately."""
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
    """Restore the state of `plain_schedule` in a schedule and its successor."""
    vars(schedule).update(state["own"])
    if state["successor"] is not None:
        restore_schedule(schedule.successor, state["successor"])


def dead_in_kgcoop(state: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Return the prefixes of keys in KgCoOp's checkpoints that its code never uses.

    CoCoOp's checkpoints also have a `meta_net`, which is used, but no `bias_vectors`.
    """
    return ("bias_vectors", "meta_net.") if "bias_vectors" in state else ()


def load_into(module: nn.Module, state: Mapping[str, Tensor], origin: str, dead: Sequence[str] = ()) -> list[str]:
    """Load the trained tensors of `state` into `module`; return notes on what was left out.

    Class-name embeddings (`token_*`) are derived from the current class names and never loaded. Missing keys are an
    error, as are unknown keys, which belong to another model, except those that start with a prefix in `dead`.

    Args:
        module: The module.
        state: The tensors by name.
        origin: Where they come from, for messages.
        dead: Prefixes of keys that may be left out.
    """
    wanted = {name for name, _ in module.named_parameters()}
    # In whichever module another code base registered them.
    offered = {key: value for key, value in state.items() if not key.rsplit(".", 1)[-1].startswith("token_")}
    missing = sorted(wanted - set(offered))
    if missing:
        listed = _list(sorted(offered)) or "nothing"
        raise UserError(f"{origin} lacks {', '.join(missing)} (it holds {listed}): it belongs to another trainer.")
    for name, parameter in module.named_parameters():
        if offered[name].shape != parameter.shape:
            raise UserError(
                f"{origin} does not fit: {name} is {_shape(offered[name])} there and {_shape(parameter)} here. "
                "It was trained on another backbone, another N_CTX or CTX_INIT, or with class-specific contexts (CSC)."
            )
        if not offered[name].is_floating_point() or offered[name].layout != torch.strided:
            raise UserError(f"{origin} does not fit: {name} is not plain real numbers, but {offered[name].dtype}.")
    others = sorted(set(offered) - wanted)
    unused = [key for key in others if key.startswith(tuple(dead))]
    unknown = [key for key in others if key not in unused]
    if unknown:
        raise UserError(
            f"{origin} also holds {_list(unknown)}, which the model of this run does not have: it was trained by "
            "another trainer, or with other settings, such as a larger PROMPT_DEPTH."
        )
    module.load_state_dict({name: offered[name] for name in wanted}, strict=False)
    return [f"{origin} also holds {_list(unused)}, not used here"] if unused else []


def _list(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _shape(tensor: Tensor) -> str:
    return " x ".join(str(size) for size in tensor.shape)
