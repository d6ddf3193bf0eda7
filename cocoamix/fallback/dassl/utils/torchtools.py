"""Checkpoints."""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from torch import nn

from cocoamix.io import checkpoints
from cocoamix.io.files import write_atomically

from .errors import MissingFileError, UnknownNameError
from .tools import mkdir_if_missing


def _without_module(weights: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Drop the prefix that nn.DataParallel puts before every key."""
    return OrderedDict((key.removeprefix("module."), value) for key, value in weights.items())


def save_checkpoint(state: dict[str, Any], save_dir: str, model_name: str = "") -> None:
    """Save `state` (with keys state_dict and epoch) and make the file `checkpoint` name it.

    The pointer is updated last, so that it never names an incomplete file.
    """
    mkdir_if_missing(save_dir)
    name = model_name or f"model.pth.tar-{state['epoch']}"
    path = os.path.join(save_dir, name)
    state = {**state, "state_dict": _without_module(state["state_dict"])}
    checkpoints.save(path, state)
    print(f"Saved checkpoint {path}")
    write_atomically(os.path.join(save_dir, "checkpoint"), lambda file: file.write(f"{name}\n".encode()))


def load_checkpoint(fpath: str | None) -> dict[str, Any]:
    """Read a checkpoint onto the CPU without running any code in it."""
    if fpath is None:
        raise UnknownNameError("No checkpoint file was given.")
    if not os.path.exists(fpath):
        raise MissingFileError(f"There is no checkpoint {fpath}.")
    return checkpoints.load(fpath)


def resume_from_checkpoint(fdir: str, model: nn.Module, optimizer: Any = None, scheduler: Any = None) -> int:
    """Restore the last checkpoint in `fdir`. Return the number of epochs done, which is the index of the next epoch."""
    pointer = os.path.join(fdir, "checkpoint")
    if not os.path.isfile(pointer):
        raise MissingFileError(f"There is nothing to resume in {fdir}: the file `checkpoint` is missing.")
    with open(pointer, encoding="utf-8") as file:
        path = os.path.join(fdir, file.readline().strip())
    checkpoint = load_checkpoint(path)
    model.load_state_dict(checkpoint["state_dict"])
    for part, saved in ((optimizer, checkpoint.get("optimizer")), (scheduler, checkpoint.get("scheduler"))):
        if part is not None and saved is not None:
            part.load_state_dict(saved)
    print(f"Resumed from {path} (epochs done: {checkpoint['epoch']})")
    return checkpoint["epoch"]


def load_pretrained_weights(model: nn.Module, weight_path: str) -> None:
    """Load the weights whose names and shapes fit `model`, and print the names of the others."""
    checkpoint = load_checkpoint(weight_path)
    weights = _without_module(checkpoint.get("state_dict", checkpoint))
    own = model.state_dict()
    fitting = {key: value for key, value in weights.items() if key in own and own[key].shape == value.shape}
    if not fitting:
        warnings.warn(f"No weight of {weight_path} fits the model: nothing was loaded.", stacklevel=2)
        return
    model.load_state_dict(fitting, strict=False)
    print(f"Loaded {len(fitting)} weights from {weight_path}")
    left_out = [key for key in weights if key not in fitting]
    if left_out:
        print(f"Left out, because their name or shape does not fit: {', '.join(left_out)}")
